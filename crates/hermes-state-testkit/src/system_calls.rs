//! The system calls that the standard library has no safe form of; all of this crate's `unsafe`.
#![expect(unsafe_code, reason = "system calls, each with its safety argument")]

use std::io;
use std::net::TcpStream;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// What can be sent to a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Signal {
    /// It runs no further, and cannot prevent it.
    Stop,
    /// It ends at once, and cannot prevent it.
    Kill,
    /// To a postmaster: fast shutdown.
    Interrupt,
    /// To a postmaster: immediate shutdown.
    Quit,
}

/// Sends a signal to one process. One that has ended meanwhile is no error.
pub(crate) fn send_signal(pid: u32, signal: Signal) -> io::Result<()> {
    // 0 and negative numbers mean groups of processes, 1 is the system's first process.
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1).expect("the id of one ordinary process");
    let number = match signal {
        Signal::Stop => libc::SIGSTOP,
        Signal::Kill => libc::SIGKILL,
        Signal::Interrupt => libc::SIGINT,
        Signal::Quit => libc::SIGQUIT,
    };
    // SAFETY: takes two integers and touches no memory of this process.
    if unsafe { libc::kill(pid, number) } == 0 {
        return Ok(());
    }
    let error = io::Error::last_os_error();
    if error.raw_os_error() == Some(libc::ESRCH) { Ok(()) } else { Err(error) }
}

/// Whether this process has the rights of root.
pub(crate) fn is_root() -> bool {
    // SAFETY: takes nothing, returns an integer, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

/// Closing this socket from now on resets the connection instead of ending it in order.
pub(crate) fn reset_on_close(socket: &TcpStream) -> io::Result<()> {
    let linger = libc::linger { l_onoff: 1, l_linger: 0 };
    let size = libc::socklen_t::try_from(size_of::<libc::linger>()).expect("a small structure");
    // SAFETY: the descriptor is open as long as `socket` is borrowed; pointer and size are those of a live `linger`,
    // which the call only reads.
    let result = unsafe {
        libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_LINGER, (&raw const linger).cast(), size)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// What is waited for on a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Interest {
    pub(crate) read: bool,
    pub(crate) write: bool,
}

/// Waits until one of the descriptors is ready, or has failed, or the time is over. The caller then tries its reads and
/// writes on non-blocking descriptors, so that it needs not be told which.
pub(crate) fn wait_ready<const N: usize>(watched: [(BorrowedFd<'_>, Interest); N], timeout: Duration) {
    let mut watched = watched.map(|(descriptor, interest)| {
        let mut events = 0;
        if interest.read {
            events |= libc::POLLIN;
        }
        if interest.write {
            events |= libc::POLLOUT;
        }
        // Without interest its errors would end the wait again and again; negative numbers are passed over.
        let fd = if events == 0 { -1 } else { descriptor.as_raw_fd() };
        libc::pollfd { fd, events, revents: 0 }
    });
    let milliseconds = i32::try_from(timeout.as_millis()).unwrap_or(i32::MAX);
    let count = libc::nfds_t::try_from(N).expect("a few descriptors");
    // SAFETY: the array has `count` elements, is this function's own, and outlives the call; the descriptors are
    // borrowed for as long. A failure (EINTR) is the same to the caller as the end of the time.
    unsafe { libc::poll(watched.as_mut_ptr(), count, milliseconds) };
}

#[cfg(test)]
mod tests {
    use std::io::{ErrorKind, Read, Write};
    use std::net::TcpListener;
    use std::os::fd::AsFd;
    use std::os::unix::process::ExitStatusExt;
    use std::process::Command;
    use std::time::Instant;

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn signals_reach_one_process_and_a_gone_one_is_no_error() {
        let mut child = Command::new("sleep").arg("600").spawn().unwrap();
        send_signal(child.id(), Signal::Kill).unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
        send_signal(child.id(), Signal::Kill).unwrap();
    }

    #[test]
    #[should_panic(expected = "one ordinary process")]
    fn groups_of_processes_get_no_signal() {
        let _ = send_signal(0, Signal::Stop);
    }

    #[test]
    fn root_is_who_owns_this_process() {
        use std::os::unix::fs::MetadataExt;
        assert_eq!(is_root(), std::fs::metadata("/proc/self").unwrap().uid() == 0);
    }

    #[test]
    fn a_close_resets_only_when_asked_to() {
        let (near, mut far) = pair();
        drop(near);
        assert_eq!(far.read(&mut [0; 8]).unwrap(), 0);
        let (near, mut far) = pair();
        reset_on_close(&near).unwrap();
        drop(near);
        assert_eq!(far.read(&mut [0; 8]).unwrap_err().kind(), ErrorKind::ConnectionReset);
    }

    #[test]
    fn waiting_ends_with_data_or_with_the_time() {
        let (mut near, far) = pair();
        let read = Interest { read: true, write: false };
        let begin = Instant::now();
        wait_ready([(far.as_fd(), read)], Duration::from_millis(30));
        assert!(begin.elapsed() >= Duration::from_millis(30));
        near.write_all(b"x").unwrap();
        let begin = Instant::now();
        wait_ready([(far.as_fd(), read)], Duration::from_secs(60));
        assert!(begin.elapsed() < Duration::from_secs(30));
    }
}
