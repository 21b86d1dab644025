//! Forking: what a child must forget, and how nothing of ours is halfway when it comes to be.
//!
//! Three things go wrong in a child that opens a store of its own (`docs/locks.md`): SQLite's list of inodes still
//! counts the parent's locks; a mutex that another thread held at the fork stays locked for ever; our own threads are
//! not there. The remedies: the device number that SQLite sees is salted once per fork, so that inherited entries are
//! never found again; the fork waits until no thread is inside SQLite's static mutexes or creating a thread; and all
//! state of ours hangs on one pointer that the child lets go.
#![expect(unsafe_code, reason = "fork handlers and SQLite's replaceable system calls")]

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use super::LockKind;
use super::crew::Crew;
use crate::backend::sqlite::store::OpenStores;

/// What this process, as opposed to its parent, has: its threads and its open stores.
pub(crate) struct Process {
    pid: u32,
    /// The threads that own our locks and run all of SQLite.
    pub(crate) crew: Crew,
    /// One that owns none, in a table of its own: it may open and close store files freely.
    pub(crate) bystander: Crew,
    pub(crate) stores: OpenStores,
}

static PROCESS: AtomicPtr<Process> = AtomicPtr::new(std::ptr::null_mut());
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Held while a thread of ours is being created, so that a fork never meets one half made (glibc's cache of stacks
/// does not survive that). A flag rather than a mutex, because the child has to release it.
static CREATING_THREAD: AtomicBool = AtomicBool::new(false);

/// How often this process's line was forked since the library was loaded; a handle of another generation is foreign.
pub(crate) fn generation() -> u64 {
    process();
    GENERATION.load(Ordering::Acquire)
}

/// The state of this process, made anew in a child, also one whose fork ran no handlers.
pub(crate) fn process() -> &'static Process {
    let pid = std::process::id();
    let seen = PROCESS.load(Ordering::Acquire);
    // SAFETY: once published a `Process` is never freed; a child leaks its parent's.
    if let Some(process) = unsafe { seen.as_ref() }
        && process.pid == pid
    {
        return process;
    }
    let fresh = Box::into_raw(Box::new(Process {
        pid,
        crew: Crew::owner(),
        bystander: Crew::bystander(),
        stores: OpenStores::default(),
    }));
    match PROCESS.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire) {
        Ok(_) => {
            if !seen.is_null() {
                #[cfg(target_os = "linux")]
                super::ofd::in_unannounced_child();
                forget_the_parent();
            }
            // SAFETY: just published, never freed.
            unsafe { &*fresh }
        }
        Err(other) => {
            // SAFETY: `fresh` was not published, so nobody else knows it; `other` was, and is never freed.
            unsafe {
                drop(Box::from_raw(fresh));
                &*other
            }
        }
    }
}

fn forget_the_parent() {
    CREATING_THREAD.store(false, Ordering::Release);
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Runs `create` while no fork can happen; forks elsewhere wait for it.
pub(crate) fn while_not_forking<T>(create: impl FnOnce() -> T) -> T {
    while CREATING_THREAD.swap(true, Ordering::Acquire) {
        std::thread::yield_now();
    }
    let made = create();
    CREATING_THREAD.store(false, Ordering::Release);
    made
}

/// Installs the fork handlers and the salted `fstat` and `stat`. Must run before the first store is opened.
pub(super) fn guard(kind: LockKind) {
    #[cfg(unix)]
    {
        salt::install();
        handlers::install(kind);
    }
    #[cfg(not(unix))]
    let _ = kind;
}

#[cfg(unix)]
mod salt {
    //! `fstat` and `stat` as SQLite sees them: true but for the device number after a fork.
    use super::{GENERATION, Ordering};
    use rusqlite::ffi;
    use std::ffi::{CStr, c_char, c_int};

    fn salted(result: c_int, into: *mut libc::stat) -> c_int {
        if result == 0 {
            let salt = GENERATION.load(Ordering::Acquire).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            // SAFETY: SQLite passes a valid buffer, which the system call just filled.
            let stat = unsafe { &mut *into };
            #[cfg(target_os = "linux")]
            let salt = salt ^ super::super::ofd::epoch(stat).wrapping_mul(0xd1b5_4a32_d192_ed03);
            stat.st_dev ^= salt as libc::dev_t;
        }
        result
    }

    unsafe extern "C" fn salted_fstat(descriptor: c_int, into: *mut libc::stat) -> c_int {
        // SAFETY: the arguments are SQLite's, passed through unchanged.
        salted(unsafe { libc::fstat(descriptor, into) }, into)
    }

    unsafe extern "C" fn salted_stat(path: *const c_char, into: *mut libc::stat) -> c_int {
        // SAFETY: the arguments are SQLite's, passed through unchanged.
        let result = unsafe { libc::stat(path, into) };
        #[cfg(target_os = "linux")]
        if result == 0 {
            // SAFETY: as in `salted`.
            super::super::ofd::verify(unsafe { &*into });
        }
        salted(result, into)
    }

    pub(super) fn install() {
        let fstat: unsafe extern "C" fn(c_int, *mut libc::stat) -> c_int = salted_fstat;
        let stat: unsafe extern "C" fn(*const c_char, *mut libc::stat) -> c_int = salted_stat;
        // SAFETY: the signatures are those of the system calls that SQLite's unix VFS declares for these names; the
        // cast to its generic pointer type is how `xSetSystemCall` takes them.
        unsafe {
            replace(c"fstat", std::mem::transmute::<*const (), ffi::sqlite3_syscall_ptr>(fstat as *const ()));
            replace(c"stat", std::mem::transmute::<*const (), ffi::sqlite3_syscall_ptr>(stat as *const ()));
        }
    }

    fn replace(name: &CStr, call: ffi::sqlite3_syscall_ptr) {
        // SAFETY: initialising is idempotent; the default VFS on unix is "unix", whose `xSetSystemCall` copies the
        // pointer; the name is a constant.
        unsafe {
            ffi::sqlite3_initialize();
            let vfs = ffi::sqlite3_vfs_find(c"unix".as_ptr());
            let set = (*vfs).xSetSystemCall.expect("the unix VFS lets its system calls be replaced");
            let result = set(vfs, name.as_ptr(), call);
            assert_eq!(result, ffi::SQLITE_OK, "the unix VFS knows {name:?}");
        }
    }
}

#[cfg(unix)]
mod handlers {
    //! What happens just before a fork and just after it, on both sides.
    use super::{CREATING_THREAD, LockKind, Ordering, PROCESS, forget_the_parent};
    use rusqlite::ffi;
    use std::sync::OnceLock;

    /// SQLite's static mutexes in the order in which SQLite itself nests them: MAIN, VFS1, OPEN, LRU, PMEM, PRNG, MEM.
    const STATIC_MUTEXES: [i32; 7] = [2, 11, 4, 6, 7, 5, 3];

    struct Mutexes([*mut ffi::sqlite3_mutex; STATIC_MUTEXES.len()]);
    // SAFETY: static mutexes of SQLite live for ever and are made for use by all threads.
    unsafe impl Send for Mutexes {}
    // SAFETY: as above.
    unsafe impl Sync for Mutexes {}

    static MUTEXES: OnceLock<Mutexes> = OnceLock::new();

    pub(super) fn install(kind: LockKind) {
        MUTEXES.get_or_init(|| {
            // SAFETY: with these numbers `sqlite3_mutex_alloc` returns pointers to statics, of which there is no end.
            Mutexes(STATIC_MUTEXES.map(|number| unsafe { ffi::sqlite3_mutex_alloc(number) }))
        });
        #[cfg(target_os = "linux")]
        if kind == LockKind::OpenFileDescription {
            // SAFETY: the handlers are functions of this library, which is never unloaded while the process lives.
            unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child_of_descriptions)) };
            return;
        }
        let _ = kind;
        // SAFETY: as above.
        unsafe { libc::pthread_atfork(Some(prepare), Some(parent), Some(child)) };
    }

    unsafe extern "C" fn prepare() {
        while CREATING_THREAD.swap(true, Ordering::Acquire) {
            std::thread::yield_now();
        }
        for mutex in MUTEXES.get().expect("installed before the handlers").0 {
            // SAFETY: a static mutex; the thread that forks is never inside SQLite, so it holds none of them.
            unsafe { ffi::sqlite3_mutex_enter(mutex) };
        }
        #[cfg(target_os = "linux")]
        super::super::ofd::before_fork();
    }

    unsafe extern "C" fn parent() {
        release();
    }

    unsafe extern "C" fn child() {
        crate::backend::sqlite::siblings::close_in_child();
        PROCESS.store(std::ptr::null_mut(), Ordering::Release);
        release();
        forget_the_parent();
    }

    #[cfg(target_os = "linux")]
    unsafe extern "C" fn child_of_descriptions() {
        super::super::ofd::in_child();
        // SAFETY: the rest of the same handler.
        unsafe { child() };
    }

    fn release() {
        #[cfg(target_os = "linux")]
        super::super::ofd::after_fork();
        for mutex in MUTEXES.get().expect("installed before the handlers").0.iter().rev() {
            // SAFETY: entered by `prepare` on this thread, of which the child's only thread is the continuation.
            unsafe { ffi::sqlite3_mutex_leave(*mutex) };
        }
        CREATING_THREAD.store(false, Ordering::Release);
    }
}
