//! The time at which a statement on this thread is to stop, which SQLite asks for while it works.

use std::cell::Cell;
use std::ffi::c_int;
use std::time::Instant;

use rusqlite::Connection;

/// How many instructions of SQLite's run between two looks at the clock: some tens of microseconds.
const LOOK: c_int = 1000;

thread_local! {
    /// A statement runs on the thread that asked for it, from its beginning to its end.
    static STOP: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// Has the connection's statements stop, as interrupted, at the deadline of their thread.
pub(super) fn heed(connection: &mut Connection) -> rusqlite::Result<()> {
    connection.progress_handler(LOOK, Some(|| STOP.get().is_some_and(|stop| Instant::now() >= stop)))
}

/// Runs `work` with a deadline for its statements.
pub(super) fn until<T>(deadline: Instant, work: impl FnOnce() -> T) -> T {
    struct Reset(Option<Instant>);
    impl Drop for Reset {
        fn drop(&mut self) {
            STOP.set(self.0);
        }
    }
    let _reset = Reset(STOP.replace(Some(deadline)));
    work()
}
