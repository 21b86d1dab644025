//! Stopping a child and letting it go on, which the standard library cannot.

use std::process::Child;

pub(crate) fn stop(child: &Child) {
    send(child, libc::SIGSTOP);
}

pub(crate) fn go_on(child: &Child) {
    send(child, libc::SIGCONT);
}

fn send(child: &Child, signal: libc::c_int) {
    let Ok(pid) = libc::pid_t::try_from(child.id()) else { return };
    #[expect(unsafe_code, reason = "the standard library only kills")]
    // SAFETY: a system call without pointers. The child has not been waited for while it is borrowed as running, so its
    // number is of no other process.
    unsafe {
        libc::kill(pid, signal);
    }
}
