/* Makes calls of the operating system fail: preloaded, and told by the environment what to do.
 *
 * FAULT_DIR     only files in this directory count
 * FAULT_CALL    which call
 * FAULT_AT      the number of the call that fails, from 1 on
 * FAULT_ERROR   its errno
 * FAULT_MODE    once | always (it and all later calls) | short (half is done) | after (all is done) |
 *               kill (the process is killed before the call)
 * FAULT_COUNTS  a file for the numbers of all calls, written at the end
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

enum call { PWRITE, WRITEV, WRITE, FDATASYNC, FSYNC, FTRUNCATE, MMAP, PREAD, READ, OPEN, RENAME, MKDIR, CHMOD, FALLOCATE, WRITE_BACK, CALLS };

static const char *const names[CALLS] = {
	"pwrite", "writev", "write", "fdatasync", "fsync", "ftruncate",
	"mmap", "pread", "read", "open", "rename", "mkdir", "chmod", "fallocate",
	"sync_file_range",
};

enum outcome { REAL, FAIL, SHORT, AFTER };

static unsigned long counts[CALLS];

static int in_dir(const char *path)
{
	const char *dir = getenv("FAULT_DIR");
	return dir && strncmp(path, dir, strlen(dir)) == 0;
}

static int is_counted(int fd)
{
	char link[64], path[PATH_MAX];
	int saved = errno;
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, sizeof(path) - 1);
	errno = saved;
	if (len < 0)
		return 0;
	path[len] = 0;
	return in_dir(path);
}

static enum outcome next(enum call call, int is_ours)
{
	const char *name = getenv("FAULT_CALL"), *at = getenv("FAULT_AT"), *mode = getenv("FAULT_MODE");
	unsigned long number;

	if (!is_ours)
		return REAL;
	number = __atomic_add_fetch(&counts[call], 1, __ATOMIC_SEQ_CST);
	if (!name || !at || !mode || strcmp(name, names[call]))
		return REAL;
	if (number < strtoul(at, NULL, 10) || (number > strtoul(at, NULL, 10) && strcmp(mode, "always")))
		return REAL;
	if (!strcmp(mode, "kill"))
		kill(getpid(), SIGKILL);
	errno = atoi(getenv("FAULT_ERROR"));
	if (!strcmp(mode, "short"))
		return SHORT;
	return strcmp(mode, "after") ? FAIL : AFTER;
}

static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

/* Does the call as `outcome` says; `half` is the call with half of its bytes. */
#define WITH(call, is_ours, failed, whole, half) \
	do { \
		enum outcome outcome = next(call, is_ours); \
		int error = errno; \
		if (outcome == FAIL) \
			return failed; \
		if (outcome == SHORT) \
			return half; \
		if (outcome == AFTER) { \
			(void)whole; \
			errno = error; \
			return failed; \
		} \
		return whole; \
	} while (0)

#define PWRITE_AS(name) \
ssize_t name(int fd, const void *from, size_t len, off_t at) \
{ \
	ssize_t (*call)(int, const void *, size_t, off_t) = real(#name); \
	WITH(PWRITE, is_counted(fd), -1, call(fd, from, len, at), call(fd, from, len / 2, at)); \
}
PWRITE_AS(pwrite)
PWRITE_AS(pwrite64)

#define PREAD_AS(name) \
ssize_t name(int fd, void *to, size_t len, off_t at) \
{ \
	ssize_t (*call)(int, void *, size_t, off_t) = real(#name); \
	WITH(PREAD, is_counted(fd), -1, call(fd, to, len, at), call(fd, to, len / 2, at)); \
}
PREAD_AS(pread)
PREAD_AS(pread64)

ssize_t read(int fd, void *to, size_t len)
{
	ssize_t (*call)(int, void *, size_t) = real("read");
	WITH(READ, is_counted(fd), -1, call(fd, to, len), call(fd, to, len / 2));
}

ssize_t write(int fd, const void *from, size_t len)
{
	ssize_t (*call)(int, const void *, size_t) = real("write");
	WITH(WRITE, is_counted(fd), -1, call(fd, from, len), call(fd, from, len / 2));
}

ssize_t writev(int fd, const struct iovec *from, int count)
{
	ssize_t (*call)(int, const struct iovec *, int) = real("writev");
	WITH(WRITEV, is_counted(fd), -1, call(fd, from, count), call(fd, from, count / 2));
}

int fdatasync(int fd)
{
	int (*call)(int) = real("fdatasync");
	WITH(FDATASYNC, is_counted(fd), -1, call(fd), -1);
}

int fsync(int fd)
{
	int (*call)(int) = real("fsync");
	WITH(FSYNC, is_counted(fd), -1, call(fd), -1);
}

#define FTRUNCATE_AS(name) \
int name(int fd, off_t len) \
{ \
	int (*call)(int, off_t) = real(#name); \
	WITH(FTRUNCATE, is_counted(fd), -1, call(fd, len), -1); \
}
FTRUNCATE_AS(ftruncate)
FTRUNCATE_AS(ftruncate64)

#define MMAP_AS(name) \
void *name(void *at, size_t len, int protection, int flags, int fd, off_t from) \
{ \
	void *(*call)(void *, size_t, int, int, int, off_t) = real(#name); \
	WITH(MMAP, fd >= 0 && is_counted(fd), MAP_FAILED, call(at, len, protection, flags, fd, from), MAP_FAILED); \
}
MMAP_AS(mmap)
MMAP_AS(mmap64)

#define OPEN_AS(name) \
int name(const char *path, int flags, ...) \
{ \
	int (*call)(const char *, int, ...) = real(#name); \
	va_list arguments; \
	unsigned mode; \
	va_start(arguments, flags); \
	mode = va_arg(arguments, unsigned); \
	va_end(arguments); \
	WITH(OPEN, in_dir(path), -1, call(path, flags, mode), -1); \
}
OPEN_AS(open)
OPEN_AS(open64)

int rename(const char *from, const char *to)
{
	int (*call)(const char *, const char *) = real("rename");
	WITH(RENAME, in_dir(from), -1, call(from, to), -1);
}

int mkdir(const char *path, mode_t mode)
{
	int (*call)(const char *, mode_t) = real("mkdir");
	WITH(MKDIR, in_dir(path), -1, call(path, mode), -1);
}

int chmod(const char *path, mode_t mode)
{
	int (*call)(const char *, mode_t) = real("chmod");
	WITH(CHMOD, in_dir(path), -1, call(path, mode), -1);
}

int fchmod(int fd, mode_t mode)
{
	int (*call)(int, mode_t) = real("fchmod");
	WITH(CHMOD, is_counted(fd), -1, call(fd, mode), -1);
}

#define FALLOCATE_AS(name) \
int name(int fd, int mode, off_t at, off_t len) \
{ \
	int (*call)(int, int, off_t, off_t) = real(#name); \
	WITH(FALLOCATE, is_counted(fd), -1, call(fd, mode, at, len), -1); \
}
FALLOCATE_AS(fallocate)
FALLOCATE_AS(fallocate64)

int sync_file_range(int fd, off64_t at, off64_t len, unsigned flags)
{
	int (*call)(int, off64_t, off64_t, unsigned) = real("sync_file_range");
	WITH(WRITE_BACK, is_counted(fd), -1, call(fd, at, len, flags), -1);
}

__attribute__((destructor)) static void report(void)
{
	const char *path = getenv("FAULT_COUNTS");
	FILE *file = path ? fopen(path, "w") : NULL;
	int call;

	if (!file)
		return;
	for (call = 0; call < CALLS; call++)
		fprintf(file, "%s %lu\n", names[call], counts[call]);
	fclose(file);
}
