//! Forking: what a child must forget, and how nothing of ours is halfway when it comes to be.
//!
//! Three things go wrong in a child that opens a store of its own (`docs/locks.md`): SQLite's list of inodes still
//! counts the parent's locks; a mutex that another thread held at the fork stays locked for ever; our own threads are
//! not there. The remedies: the device number that SQLite sees is salted once per fork, so that inherited entries are
//! never found again; the fork waits until no thread is inside SQLite's static mutexes or creating a thread; and what
//! belongs to one process is kept in a [`PerProcess`], which the child lets go.
#![expect(unsafe_code, reason = "fork handlers and SQLite's replaceable system calls")]

use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};

use super::LockKind;

/// The process that this memory was last seen in; 0 before the first look.
static PROCESS: AtomicU32 = AtomicU32::new(0);
static GENERATION: AtomicU64 = AtomicU64::new(0);

/// Held while a thread of ours is being created, so that a fork never meets one half made (glibc's cache of stacks
/// does not survive that). A flag rather than a mutex, because the child has to release it.
static CREATING_THREAD: AtomicBool = AtomicBool::new(false);

static IN_CHILD: OnceLock<fn()> = OnceLock::new();

/// Has `action` run in every forked child, at once where handlers run, else when the child first asks for something.
/// The first action stays; it must neither allocate nor lock.
pub(crate) fn in_child(action: fn()) {
    IN_CHILD.get_or_init(|| action);
}

/// How often this process's line was forked since the library was loaded; a handle of another generation is foreign.
pub(crate) fn generation() -> u64 {
    let here = std::process::id();
    let seen = PROCESS.load(Ordering::Acquire);
    if seen != here && PROCESS.compare_exchange(seen, here, Ordering::AcqRel, Ordering::Acquire).is_ok() && seen != 0 {
        // A child whose fork ran no handlers.
        #[cfg(target_os = "linux")]
        super::ofd::in_unannounced_child();
        forget_the_parent();
    }
    GENERATION.load(Ordering::Acquire)
}

fn forget_the_parent() {
    if let Some(action) = IN_CHILD.get() {
        action();
    }
    CREATING_THREAD.store(false, Ordering::Release);
    GENERATION.fetch_add(1, Ordering::AcqRel);
}

/// Something of which each process has its own, made when it is first asked for: what a child inherits of its parent's
/// it must not even look at, and lets go.
pub(crate) struct PerProcess<T: 'static> {
    made: AtomicPtr<Made<T>>,
    make: fn() -> T,
}

struct Made<T> {
    generation: u64,
    value: T,
}

impl<T: Send + Sync> PerProcess<T> {
    pub(crate) const fn new(make: fn() -> T) -> Self {
        Self { made: AtomicPtr::new(std::ptr::null_mut()), make }
    }

    /// This process's own.
    pub(crate) fn get(&'static self) -> &'static T {
        let generation = generation();
        let seen = self.made.load(Ordering::Acquire);
        // SAFETY: once published it is never freed; a child leaks its parent's.
        if let Some(made) = unsafe { seen.as_ref() }
            && made.generation == generation
        {
            return &made.value;
        }
        let fresh = Box::into_raw(Box::new(Made { generation, value: (self.make)() }));
        match self.made.compare_exchange(seen, fresh, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just published, never freed.
            Ok(_) => unsafe { &(*fresh).value },
            // SAFETY: `fresh` was not published, so nobody else knows it; `other` was, and is never freed.
            Err(other) => unsafe {
                drop(Box::from_raw(fresh));
                &(*other).value
            },
        }
    }
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
        PROCESS.store(std::process::id(), Ordering::Release);
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
