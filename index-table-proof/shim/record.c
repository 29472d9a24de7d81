/* Records what a process writes, names and syncs: preloaded, and configured by the environment.
 *
 * RECORD_DIR  only files in this directory are recorded
 * RECORD_LOG  the file for the record, outside of that directory
 *
 * An event is: kind (1 byte), length of its bytes (4), three numbers (8 each), the bytes; little-endian.
 * A write is recorded before it is done, so that the record never lacks one that has reached the file.
 * Writes and names are done one at a time, in the order of the record. Syncs run beside them.
 *
 * kind   numbers                    bytes
 * F      inode                      path       a file was created
 * D      inode                      path       a directory was created
 * W      inode, offset, number      data       a write; number: not 0 if it is durable when it returns
 * w      number                                it has returned
 * L      inode, length                         the length was set
 * S      inode, number              path       a sync has begun
 * s      number                                it has returned without an error
 * R                                 from 0 to  renamed
 * U                                 path       removed
 * O                                 text       written to the standard output
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static int record = -1;
static uint64_t numbers;

static void *real(const char *name)
{
	return dlsym(RTLD_NEXT, name);
}

static int in_dir(const char *path)
{
	const char *dir = getenv("RECORD_DIR");
	return dir && strncmp(path, dir, strlen(dir)) == 0;
}

static int path_of(int fd, char *path)
{
	char link[64];
	int saved = errno;
	ssize_t len;

	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	len = readlink(link, path, PATH_MAX - 1);
	errno = saved;
	if (len < 0)
		return 0;
	path[len] = 0;
	return in_dir(path);
}

static uint64_t inode_of(int fd)
{
	struct stat found;
	return fstat(fd, &found) ? 0 : found.st_ino;
}

static uint64_t inode_at(const char *path)
{
	struct stat found;
	return stat(path, &found) ? 0 : found.st_ino;
}

static void put(const void *from, size_t len)
{
	static ssize_t (*call)(int, const void *, size_t);
	const char *at = from;

	if (!call)
		call = real("write");
	while (len) {
		ssize_t done = call(record, at, len);
		if (done < 0) {
			if (errno == EINTR)
				continue;
			abort();
		}
		at += done;
		len -= done;
	}
}

/* With the turn. */
static void event(char kind, uint64_t a, uint64_t b, uint64_t c, const struct iovec *bytes, int count)
{
	unsigned char head[29];
	uint32_t len = 0;
	int saved = errno, i;

	if (record < 0) {
		int (*call)(const char *, int, ...) = real("open");
		record = call(getenv("RECORD_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
		if (record < 0)
			abort();
	}
	for (i = 0; i < count; i++)
		len += bytes[i].iov_len;
	head[0] = kind;
	memcpy(head + 1, &len, 4);
	memcpy(head + 5, &a, 8);
	memcpy(head + 13, &b, 8);
	memcpy(head + 21, &c, 8);
	put(head, sizeof(head));
	for (i = 0; i < count; i++)
		put(bytes[i].iov_base, bytes[i].iov_len);
	errno = saved;
}

static void text(char kind, uint64_t a, uint64_t b, const char *bytes)
{
	struct iovec one = { (void *)bytes, strlen(bytes) };
	event(kind, a, b, 0, &one, 1);
}

static void begin(void)
{
	pthread_mutex_lock(&turn);
}

static void end(void)
{
	pthread_mutex_unlock(&turn);
}

/* With the turn: records a write at `at`; -1: where the descriptor is. */
static uint64_t written(int fd, const struct iovec *bytes, int count, off_t at)
{
	int flags = fcntl(fd, F_GETFL);
	uint64_t number = flags & O_DSYNC ? ++numbers : 0;
	struct stat found;

	if (at < 0)
		at = flags & O_APPEND && !fstat(fd, &found) ? found.st_size : lseek(fd, 0, SEEK_CUR);
	event('W', inode_of(fd), at, number, bytes, count);
	return number;
}

static void returned(uint64_t number)
{
	if (number)
		event('w', number, 0, 0, NULL, 0);
}

#define PWRITE_AS(name) \
ssize_t name(int fd, const void *from, size_t len, off_t at) \
{ \
	ssize_t (*call)(int, const void *, size_t, off_t) = real(#name); \
	struct iovec bytes = { (void *)from, len }; \
	char path[PATH_MAX]; \
	uint64_t number; \
	ssize_t done; \
	if (!path_of(fd, path)) \
		return call(fd, from, len, at); \
	begin(); \
	number = written(fd, &bytes, 1, at); \
	done = call(fd, from, len, at); \
	returned(number); \
	end(); \
	return done; \
}
PWRITE_AS(pwrite)
PWRITE_AS(pwrite64)

#define PWRITEV_AS(name) \
ssize_t name(int fd, const struct iovec *from, int count, off_t at) \
{ \
	ssize_t (*call)(int, const struct iovec *, int, off_t) = real(#name); \
	char path[PATH_MAX]; \
	uint64_t number; \
	ssize_t done; \
	if (!path_of(fd, path)) \
		return call(fd, from, count, at); \
	begin(); \
	number = written(fd, from, count, at); \
	done = call(fd, from, count, at); \
	returned(number); \
	end(); \
	return done; \
}
PWRITEV_AS(pwritev)
PWRITEV_AS(pwritev64)

ssize_t write(int fd, const void *from, size_t len)
{
	ssize_t (*call)(int, const void *, size_t) = real("write");
	struct iovec bytes = { (void *)from, len };
	char path[PATH_MAX];
	uint64_t number;
	ssize_t done;

	if (fd == STDOUT_FILENO) {
		begin();
		event('O', 0, 0, 0, &bytes, 1);
		end();
		return call(fd, from, len);
	}
	if (!path_of(fd, path))
		return call(fd, from, len);
	begin();
	number = written(fd, &bytes, 1, -1);
	done = call(fd, from, len);
	returned(number);
	end();
	return done;
}

ssize_t writev(int fd, const struct iovec *from, int count)
{
	ssize_t (*call)(int, const struct iovec *, int) = real("writev");
	char path[PATH_MAX];
	uint64_t number;
	ssize_t done;

	if (!path_of(fd, path))
		return call(fd, from, count);
	begin();
	number = written(fd, from, count, -1);
	done = call(fd, from, count);
	returned(number);
	end();
	return done;
}

static int sync_as(const char *name, int fd)
{
	int (*call)(int) = real(name);
	char path[PATH_MAX];
	uint64_t number;
	int done;

	if (!path_of(fd, path))
		return call(fd);
	begin();
	number = ++numbers;
	text('S', inode_of(fd), number, path);
	end();
	done = call(fd);
	begin();
	if (!done)
		event('s', number, 0, 0, NULL, 0);
	end();
	return done;
}

int fdatasync(int fd)
{
	return sync_as("fdatasync", fd);
}

int fsync(int fd)
{
	return sync_as("fsync", fd);
}

#define FTRUNCATE_AS(name) \
int name(int fd, off_t len) \
{ \
	int (*call)(int, off_t) = real(#name); \
	char path[PATH_MAX]; \
	int done; \
	if (!path_of(fd, path)) \
		return call(fd, len); \
	begin(); \
	event('L', inode_of(fd), len, 0, NULL, 0); \
	done = call(fd, len); \
	end(); \
	return done; \
}
FTRUNCATE_AS(ftruncate)
FTRUNCATE_AS(ftruncate64)

static int allocate_as(const char *name, int fd, int mode, off_t at, off_t len)
{
	int (*call)(int, int, off_t, off_t) = real(name);
	char path[PATH_MAX];
	struct stat found;
	int done;

	if (!path_of(fd, path) || mode & FALLOC_FL_KEEP_SIZE)
		return call(fd, mode, at, len);
	if (mode)
		abort();
	begin();
	done = call(fd, mode, at, len);
	if (!done && !fstat(fd, &found))
		event('L', found.st_ino, found.st_size, 0, NULL, 0);
	end();
	return done;
}

int fallocate(int fd, int mode, off_t at, off_t len)
{
	return allocate_as("fallocate", fd, mode, at, len);
}

int fallocate64(int fd, int mode, off_t at, off_t len)
{
	return allocate_as("fallocate64", fd, mode, at, len);
}

int posix_fallocate(int fd, off_t at, off_t len)
{
	return allocate_as("fallocate", fd, 0, at, len) ? errno : 0;
}

int posix_fallocate64(int fd, off_t at, off_t len)
{
	return posix_fallocate(fd, at, len);
}

#define OPEN_AS(name) \
int name(const char *path, int flags, ...) \
{ \
	int (*call)(const char *, int, ...) = real(#name); \
	va_list arguments; \
	unsigned mode; \
	uint64_t before; \
	int fd; \
	va_start(arguments, flags); \
	mode = va_arg(arguments, unsigned); \
	va_end(arguments); \
	if (!in_dir(path) || !(flags & (O_CREAT | O_TRUNC))) \
		return call(path, flags, mode); \
	begin(); \
	before = inode_at(path); \
	fd = call(path, flags, mode); \
	if (fd >= 0 && !before) \
		text('F', inode_of(fd), 0, path); \
	else if (fd >= 0 && flags & O_TRUNC) \
		event('L', before, 0, 0, NULL, 0); \
	end(); \
	return fd; \
}
OPEN_AS(open)
OPEN_AS(open64)

int rename(const char *from, const char *to)
{
	int (*call)(const char *, const char *) = real("rename");
	struct iovec paths[2] = { { (void *)from, strlen(from) + 1 }, { (void *)to, strlen(to) } };
	int done;

	if (!in_dir(from))
		return call(from, to);
	begin();
	done = call(from, to);
	if (!done)
		event('R', 0, 0, 0, paths, 2);
	end();
	return done;
}

int mkdir(const char *path, mode_t mode)
{
	int (*call)(const char *, mode_t) = real("mkdir");
	int done;

	if (!in_dir(path))
		return call(path, mode);
	begin();
	done = call(path, mode);
	if (!done)
		text('D', inode_at(path), 0, path);
	end();
	return done;
}

static int remove_as(const char *name, const char *path)
{
	int (*call)(const char *) = real(name);
	int done;

	if (!in_dir(path))
		return call(path);
	begin();
	done = call(path);
	if (!done)
		text('U', 0, 0, path);
	end();
	return done;
}

int unlink(const char *path)
{
	return remove_as("unlink", path);
}

int rmdir(const char *path)
{
	return remove_as("rmdir", path);
}

int unlinkat(int dir, const char *name, int flags)
{
	int (*call)(int, const char *, int) = real("unlinkat");
	char path[2 * PATH_MAX];
	int done;

	if (dir == AT_FDCWD || !path_of(dir, path))
		return call(dir, name, flags);
	strcat(path, "/");
	strncat(path, name, PATH_MAX - 1);
	begin();
	done = call(dir, name, flags);
	if (!done)
		text('U', 0, 0, path);
	end();
	return done;
}

/* Copies in the kernel would go unrecorded; without them, callers read and write. */
ssize_t copy_file_range(int in, off_t *in_at, int out, off_t *out_at, size_t len, unsigned flags)
{
	(void)in, (void)in_at, (void)out, (void)out_at, (void)len, (void)flags;
	errno = ENOSYS;
	return -1;
}

ssize_t sendfile64(int out, int in, off_t *at, size_t len)
{
	(void)out, (void)in, (void)at, (void)len;
	errno = ENOSYS;
	return -1;
}
