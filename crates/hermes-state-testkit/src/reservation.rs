//! Numbers (ports, networks) of which only one process of this machine may use each at a time.
//!
//! A reservation is a Unix socket of an abstract name: the kernel gives it to one process only, and takes it back when
//! that process ends, however it ends. Such names belong to a network namespace, as ports and addresses do.

use std::net::TcpListener;
use std::ops::Range;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use crate::random::unforeseeable;

/// A number that is this process's until it is dropped.
#[derive(Debug)]
pub(crate) struct Reservation {
    number: u16,
    _socket: UnixListener,
}

impl Reservation {
    pub(crate) fn number(&self) -> u16 {
        self.number
    }
}

/// Reserves one number; `None` if some process has it.
pub(crate) fn reserve(kind: &str, number: u16) -> Option<Reservation> {
    let address =
        SocketAddr::from_abstract_name(format!("hermes-state-testkit/{kind}/{number}")).expect("a short name");
    let socket = UnixListener::bind_addr(&address).ok()?;
    Some(Reservation { number, _socket: socket })
}

/// Reserves any number of a range that is `usable`, beginning anywhere in it.
pub(crate) fn reserve_any(kind: &str, range: Range<u16>, usable: impl Fn(u16) -> bool) -> Option<Reservation> {
    let count = u64::try_from(range.len()).expect("a range of 16 bits");
    let first = unforeseeable() % count;
    (0..count).find_map(|step| {
        let offset = u16::try_from((first + step) % count).expect("within the range");
        reserve(kind, range.start + offset).filter(|reservation| usable(reservation.number()))
    })
}

/// Reserves a TCP port for a server that may be down for a while and must come back on the same port.
pub(crate) fn reserve_port() -> Reservation {
    reserve_any("port", servers_ports(), |port| TcpListener::bind(("0.0.0.0", port)).is_ok()).expect("a free TCP port")
}

/// The ports that the kernel gives to no client. Among the others, a client of whatever program could take the port of a
/// server that is down, and a client that tries to reach it again and again would at last be connected to itself.
fn servers_ports() -> Range<u16> {
    #[expect(clippy::disallowed_methods, reason = "a text of the kernel")]
    let text = std::fs::read_to_string("/proc/sys/net/ipv4/ip_local_port_range").unwrap_or_default();
    let mut numbers = text.split_whitespace().map_while(|number| number.parse::<u16>().ok());
    match (numbers.next(), numbers.next()) {
        (Some(low), _) if low > 12_000 => 10_000..low,
        (_, Some(high)) if high < 64_000 => high + 1..u16::MAX,
        _ => 10_000..32_768,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_given_once_until_it_is_given_back() {
        let first = reserve_any("of-this-test", 7..9, |_| true).unwrap();
        let second = reserve_any("of-this-test", 7..9, |_| true).unwrap();
        assert_ne!(first.number(), second.number());
        assert!(reserve_any("of-this-test", 7..9, |_| true).is_none());
        let freed = first.number();
        drop(first);
        assert_eq!(reserve_any("of-this-test", 7..9, |_| true).unwrap().number(), freed);
        assert!(reserve_any("of-this-test", 7..9, |_| false).is_none());
    }
}
