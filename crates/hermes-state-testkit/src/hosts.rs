//! Network namespaces that stand for the hosts of agents, each with a cable to the machine that has the server.
//!
//! Namespaces and cables are named by the number of their network, which is reserved as long as its maker lives. So the
//! leftovers of a killed run are those whose number can be reserved by somebody else.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::Command;

use crate::reservation::{Reservation, reserve, reserve_any};
use crate::system_calls;

const NAMESPACE: &str = "hermes-test-";
/// 198.18.0.0/15 has as many networks of 256 addresses.
const NETWORKS: u16 = 512;
/// A network has room for as many cables with 4 addresses each.
const MOST: usize = 64;

/// Hosts that reach this machine, and it them, over a network of their own. Removed when dropped.
#[derive(Debug)]
pub struct Hosts {
    network: Reservation,
    count: usize,
}

impl Hosts {
    /// Makes `count` hosts, after it has removed those that killed runs have left. `None`, after a loud line with the
    /// reason, where the machine does not allow it: that takes root and the program `ip`.
    ///
    /// # Panics
    ///
    /// When more than 64 are wanted.
    #[must_use]
    pub fn make(count: usize) -> Option<Self> {
        assert!(count <= MOST, "at most {MOST} hosts");
        let made = if system_calls::is_root() { Self::try_make(count) } else { Err("only root may".to_owned()) };
        made.inspect_err(|reason| {
            // Not by a macro, whose output the test harness would hide.
            let _ = writeln!(std::io::stderr(), "SKIPPED: no network namespaces as hosts: {reason}");
        })
        .ok()
    }

    fn try_make(count: usize) -> Result<Self, String> {
        remove_leftovers()?;
        let network = reserve_any("network", 0..NETWORKS, |_| true).ok_or("no network number is free")?;
        // Also removes what was made, if the rest fails.
        let hosts = Self { network, count };
        for host in 0..count {
            hosts.make_host(host)?;
        }
        Ok(hosts)
    }

    fn make_host(&self, host: usize) -> Result<(), String> {
        let number = self.network.number();
        let (namespace, near, far) =
            (namespace(number, host), cable(number, host), format!("{}e", cable(number, host)));
        ip(format!("netns add {namespace}"))?;
        ip(format!("link add {near} type veth peer name {far} netns {namespace}"))?;
        ip(format!("address add {}/30 dev {near}", self.server_address(host)))?;
        ip(format!("link set {near} up"))?;
        ip(format!("-n {namespace} address add {}/30 dev {far}", self.address(host)))?;
        ip(format!("-n {namespace} link set {far} up"))?;
        ip(format!("-n {namespace} link set lo up"))?;
        Ok(())
    }

    /// A command that will run on a host.
    #[must_use]
    pub fn command(&self, host: usize, program: impl AsRef<OsStr>) -> Command {
        self.check(host);
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &namespace(self.network.number(), host)]).arg(program);
        command
    }

    /// The address under which a host reaches a server on this machine that listens on all addresses.
    #[must_use]
    pub fn server_address(&self, host: usize) -> IpAddr {
        self.nth_address(host, 1)
    }

    /// The address of a host.
    #[must_use]
    pub fn address(&self, host: usize) -> IpAddr {
        self.nth_address(host, 2)
    }

    /// How many hosts there are.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// Pulls a host's cable out, or plugs it in again. Nothing is told to either side; what is sent meanwhile is lost.
    ///
    /// # Panics
    ///
    /// When the system refuses.
    pub fn plug(&self, host: usize, plugged: bool) {
        self.check(host);
        let state = if plugged { "up" } else { "down" };
        // The far end: if the near one went down, its address would too, and the server's side would see an error.
        let (namespace, far) = (namespace(self.network.number(), host), cable(self.network.number(), host) + "e");
        ip(format!("-n {namespace} link set {far} {state}")).expect("the cable of a host");
    }

    fn nth_address(&self, host: usize, nth: u32) -> IpAddr {
        self.check(host);
        let host = u32::try_from(host).expect("a small number");
        let first = u32::from(Ipv4Addr::new(198, 18, 0, 0));
        IpAddr::V4(Ipv4Addr::from(first + u32::from(self.network.number()) * 256 + host * 4 + nth))
    }

    fn check(&self, host: usize) {
        assert!(host < self.count, "there are {} hosts, and no number {host}", self.count);
    }
}

impl Drop for Hosts {
    fn drop(&mut self) {
        for host in 0..self.count {
            remove(self.network.number(), host);
        }
    }
}

fn namespace(network: u16, host: usize) -> String {
    format!("{NAMESPACE}{network}-{host}")
}

/// The name of the end that is here. Names of network devices have at most 15 letters.
fn cable(network: u16, host: usize) -> String {
    format!("hst{network}h{host}")
}

fn remove(network: u16, host: usize) {
    // The cable by itself: a process that still runs on the host would keep it. What was never made cannot be removed.
    let _ = ip(format!("link delete {}", cable(network, host)));
    let _ = ip(format!("netns delete {}", namespace(network, host)));
}

fn remove_leftovers() -> Result<(), String> {
    for line in ip("netns list")?.lines() {
        let name = line.split_whitespace().next().unwrap_or_default();
        let numbers = name.strip_prefix(NAMESPACE).and_then(|numbers| numbers.split_once('-'));
        if let Some((network, host)) = numbers
            && let (Ok(network), Ok(host)) = (network.parse(), host.parse())
            && let Some(_nobodys) = reserve("network", network)
        {
            remove(network, host);
        }
    }
    Ok(())
}

/// Runs `ip`; the error is what it says.
fn ip(arguments: impl AsRef<str> + fmt::Display) -> Result<String, String> {
    let output = Command::new("ip")
        .args(arguments.as_ref().split(' '))
        .output()
        .map_err(|error| format!("ip (Debian: apt-get install iproute2) does not start: {error}"))?;
    if output.status.success() {
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    } else {
        Err(format!("ip {arguments}: {}", String::from_utf8_lossy(&output.stderr).trim()))
    }
}
