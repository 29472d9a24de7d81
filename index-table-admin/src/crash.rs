//! LMDB ends the process by a signal when it reads some damaged pages. The signal becomes an error with an exit code.
//!
//! The handler is in the process itself, and the command is not run in a child process. So the process has the input,
//! the output, the terminal and the signals of a shell, and no writer is left behind when it is killed.

use std::path::Path;

use crate::{failure::Code, open::DATA, output::Output};

/// The signals of LMDB: a failed assertion, a page that the file does not have, and an address outside of its maps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Signal {
    Abort,
    Bus,
    Segment,
}

impl Signal {
    const ALL: [Self; 3] = [Self::Abort, Self::Bus, Self::Segment];

    fn name(self) -> &'static str {
        match self {
            Self::Abort => "SIGABRT",
            Self::Bus => "SIGBUS",
            Self::Segment => "SIGSEGV",
        }
    }
}

/// The whole outputs for each signal. A signal handler can't allocate memory.
struct Messages([(Signal, Vec<u8>); 3]);

impl Messages {
    fn new(out: &Output, what: &str, way_out: &str) -> Self {
        Self(Signal::ALL.map(|signal| {
            let message = format!(
                "{what} can't be used: the process ended with the signal {}, as LMDB does at a damaged page; {way_out}",
                signal.name()
            );
            (signal, out.abrupt_error(Code::Damage as u8, &message).into_bytes())
        }))
    }

    fn of(&self, signal: Signal) -> Option<&[u8]> {
        self.0.iter().find(|(own, _)| *own == signal).map(|(_, message)| message.as_slice())
    }
}

fn way_out(store: &Path) -> String {
    format!(
        "run `check {}`, and restore the directory from a copy if it finds damage",
        store.display()
    )
}

/// From now on, a signal of LMDB is an error that names the file of this store.
pub(crate) fn report(out: &Output, store: &Path) {
    os::install(|| {
        let what = if store.join(DATA).is_file() {
            format!("`{}`", store.join(DATA).display())
        } else {
            format!("`{}`", store.display())
        };
        Messages::new(out, &what, &way_out(store))
    });
}

/// Lets the error name the file of the shard with the damage, if the address of the signal is in its map, and otherwise the
/// directory of the store.
pub(crate) fn report_shards(out: &Output, store: &Path) {
    os::name_directory(|| Messages::new(out, &format!("`{}`", store.display()), &way_out(store)));
    os::name_files(|file| Messages::new(out, &format!("`{file}`"), &way_out(store)));
}

#[cfg(unix)]
#[expect(unsafe_code, reason = "signal handlers are unsafe")]
mod os {
    use std::{
        ffi::{c_int, c_void},
        fs,
        ops::Range,
        ptr,
        sync::{
            OnceLock,
            atomic::{AtomicBool, Ordering::AcqRel},
        },
        thread,
    };

    use super::{Code, DATA, Messages, Signal};

    /// The messages for a store.
    static STORE: OnceLock<Messages> = OnceLock::new();

    /// The messages for a sharded store, which are used instead.
    static SHARDS: OnceLock<Messages> = OnceLock::new();

    /// The messages for the files that are mapped at these addresses.
    static FILES: OnceLock<Vec<(Range<usize>, Messages)>> = OnceLock::new();

    static IS_REPORTED: AtomicBool = AtomicBool::new(false);

    fn number(signal: Signal) -> c_int {
        match signal {
            Signal::Abort => libc::SIGABRT,
            Signal::Bus => libc::SIGBUS,
            Signal::Segment => libc::SIGSEGV,
        }
    }

    pub(super) fn install(messages: impl FnOnce() -> Messages) {
        STORE.get_or_init(messages);
        for signal in Signal::ALL {
            // SAFETY: all zeros are a valid action, whose fields are then set. The handler is a function with the
            // arguments that `SA_SIGINFO` requires.
            unsafe {
                let mut action: libc::sigaction = std::mem::zeroed();
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
                action.sa_sigaction = handler as usize;
                action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
                libc::sigemptyset(&raw mut action.sa_mask);
                // Without the handler, the signal ends the process, as before.
                libc::sigaction(number(signal), &raw const action, ptr::null_mut());
            }
        }
    }

    /// Sets the messages for a sharded store.
    pub(super) fn name_directory(messages: impl FnOnce() -> Messages) {
        SHARDS.get_or_init(messages);
    }

    /// Notes where the data files are mapped. Only Linux shows this.
    pub(super) fn name_files(messages: impl Fn(&str) -> Messages) {
        let Ok(maps) = fs::read_to_string("/proc/self/maps") else { return };
        let file = |line: &str| {
            let path = line.get(line.find('/')?..)?;
            let (start, end) = line.split(' ').next()?.split_once('-')?;
            let address = |text| usize::from_str_radix(text, 16).ok();
            let is_data = path.rsplit('/').next() == Some(DATA);
            is_data.then_some((address(start)?..address(end)?, messages(path)))
        };
        FILES.get_or_init(|| maps.lines().filter_map(file).collect());
    }

    /// `SI_USER`: a process has sent the signal. The crate `libc` has it for few systems.
    const SENT: c_int =
        if cfg!(any(target_vendor = "apple", target_os = "freebsd")) { 0x1_0001 } else { 0 };

    /// Writes the message and ends the process. It makes only operations that are allowed in a signal handler: it reads
    /// values that don't change, and makes system calls. Damage can have overwritten the values of the thread, which
    /// are only read after an abort.
    extern "C" fn handle(number: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
        // SAFETY: the system gives a valid value.
        let (is_sent, address) = unsafe { ((*info).si_code == SENT, (*info).si_addr()) };
        // An aborted panic has a message of its own.
        let is_panic = || number == libc::SIGABRT && thread::panicking();
        if !is_sent
            && !is_panic()
            && let Some(message) = message(number, address as usize)
        {
            // SAFETY: the bytes are never dropped, and the functions are allowed in a handler.
            unsafe {
                if IS_REPORTED.swap(true, AcqRel) {
                    // Another thread ends the process.
                    loop {
                        libc::pause();
                    }
                }
                let mut left = message;
                while let Some(rest) = write(left).and_then(|written| left.get(written..)) {
                    left = rest;
                }
                libc::_exit(Code::Damage as c_int);
            }
        }
        // SAFETY: the functions are allowed in a handler. The signal ends the process after the return.
        unsafe {
            libc::signal(number, libc::SIG_DFL);
            libc::raise(number);
        }
    }

    /// Calls `write` of the system, and returns the number of written bytes. The function of the C library reads values of
    /// the thread.
    fn write(bytes: &[u8]) -> Option<usize> {
        let (stream, start, length) = (libc::STDERR_FILENO, bytes.as_ptr(), bytes.len());
        // SAFETY: the bytes are valid for reads of their length.
        #[cfg(target_os = "linux")]
        let written = unsafe { libc::syscall(libc::SYS_write, stream, start, length) };
        // SAFETY: the same.
        #[cfg(not(target_os = "linux"))]
        let written = unsafe { libc::write(stream, start.cast(), length) };
        usize::try_from(written).ok().filter(|written| *written > 0)
    }

    fn message(received: c_int, address: usize) -> Option<&'static [u8]> {
        let signal = Signal::ALL.into_iter().find(|own| number(*own) == received)?;
        // The signal of an assertion has no address.
        let files = FILES.get().filter(|_| signal != Signal::Abort);
        let file = files.and_then(|files| files.iter().find(|(map, _)| map.contains(&address)));
        let file = file.map(|(_, messages)| messages);
        file.or_else(|| SHARDS.get()).or_else(|| STORE.get())?.of(signal)
    }
}

#[cfg(not(unix))]
mod os {
    use super::Messages;

    pub(super) fn install(_: impl FnOnce() -> Messages) {}

    pub(super) fn name_directory(_: impl FnOnce() -> Messages) {}

    pub(super) fn name_files(_: impl Fn(&str) -> Messages) {}
}
