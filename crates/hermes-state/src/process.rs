//! Telling a process of this system from all others, and whether it is still there.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// A process, in terms that no other one ever shares.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Process {
    /// The run of the system, and the space of numbers in it, that the number belongs to.
    pub(crate) host: String,
    pub(crate) pid: i64,
    /// When it started, in clock ticks since the system did: a number that is given again comes with another.
    pub(crate) started: i64,
}

impl Process {
    /// This process; `None` where the system does not tell so much.
    pub(crate) fn this() -> Option<Self> {
        let pid = std::process::id();
        Some(Self { host: host()?, pid: pid.into(), started: start_of(pid)?.try_into().ok()? })
    }

    /// Whether the process has ended, as far as can be known here: of one of another host, and where the system hides
    /// processes, it cannot.
    pub(crate) fn is_gone(&self) -> bool {
        let Ok(pid) = u32::try_from(self.pid) else { return false };
        if !shows_everybody() || host().as_ref() != Some(&self.host) {
            return false;
        }
        match Stat::read(pid) {
            Ok(found) => {
                found.is_some_and(|found| found.has_ended() || i64::try_from(found.started) != Ok(self.started))
            }
            // ESRCH: it ended between the opening and the reading.
            Err(error) => error.kind() == std::io::ErrorKind::NotFound || error.raw_os_error() == Some(libc::ESRCH),
        }
    }
}

/// When a process started, in clock ticks since the system did.
pub(crate) fn start_of(pid: u32) -> Option<u64> {
    Stat::read(pid).ok().flatten().map(|stat| stat.started)
}

/// How long a process has been running, in seconds.
pub(crate) fn age_of(pid: u32) -> Option<f64> {
    /// Of all architectures that Linux runs on but one, which is gone.
    const TICKS_PER_SECOND: f64 = 100.0;
    let uptime = String::from_utf8(read("/proc/uptime").ok()?).ok()?;
    let uptime: f64 = uptime.split(' ').next()?.parse().ok()?;
    Some((uptime - start_of(pid)? as f64 / TICKS_PER_SECOND).max(0.0))
}

/// The space in which this process's number has a meaning: containers that share a store have one each.
pub(crate) fn namespace() -> u64 {
    std::fs::metadata("/proc/self/ns/pid").map_or(0, |namespace| namespace.ino())
}

fn host() -> Option<String> {
    let namespace = namespace();
    let boot = read("/proc/sys/kernel/random/boot_id").ok().filter(|_| namespace != 0)?;
    Some(format!("{}/{namespace}", String::from_utf8(boot).ok()?.trim()))
}

/// Whether a process that `/proc` does not show is none: it may be mounted so as to hide those of others, or be that of
/// another space of numbers.
fn shows_everybody() -> bool {
    let own = std::fs::read_link("/proc/self");
    own.is_ok_and(|own| own.to_str() == Some(&std::process::id().to_string())) && Path::new("/proc/1").exists()
}

/// What `/proc/<pid>/stat` says (proc(5)).
struct Stat {
    state: u8,
    threads: u64,
    started: u64,
}

impl Stat {
    /// `None` if it reads otherwise than it should.
    fn read(pid: u32) -> std::io::Result<Option<Self>> {
        Ok(Self::parse(&read(&format!("/proc/{pid}/stat"))?))
    }

    fn parse(stat: &[u8]) -> Option<Self> {
        // The second field is the program's name in parentheses and may hold anything, parentheses and blanks included.
        let after_name = stat.iter().rposition(|byte| *byte == b')')? + 1;
        let fields: Vec<&str> = std::str::from_utf8(&stat[after_name..]).ok()?.split_ascii_whitespace().collect();
        let field = |number: usize| fields.get(number - 3).copied();
        Some(Self {
            state: *field(3)?.as_bytes().first()?,
            threads: field(20)?.parse().ok()?,
            started: field(22)?.parse().ok()?,
        })
    }

    /// It is only kept for its parent to learn how it ended. One whose first thread has ended looks the same but for
    /// the others.
    fn has_ended(&self) -> bool {
        matches!(self.state, b'Z' | b'X') && self.threads <= 1
    }
}

#[expect(clippy::disallowed_methods, reason = "a file of the kernel, never a store")]
fn read(path: &str) -> std::io::Result<Vec<u8>> {
    std::fs::read(path)
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    fn of(pid: u32) -> Process {
        let started = start_of(pid).expect("is there").try_into().expect("fits");
        Process { host: host().expect("told"), pid: pid.into(), started }
    }

    #[test]
    fn a_process_is_gone_when_it_was_killed_even_before_its_parent_has_asked() {
        let mut child = Command::new("sleep").arg("600").stdout(Stdio::null()).spawn().expect("runs");
        let process = of(child.id());
        assert!(!process.is_gone());
        child.kill().expect("killed");
        while !matches!(Stat::read(child.id()), Ok(Some(Stat { state: b'Z', .. }))) {
            std::thread::yield_now();
        }
        assert!(process.is_gone(), "it is left for its parent, and no more");
        child.wait().expect("ends");
        assert!(process.is_gone());
    }

    #[test]
    fn a_number_that_was_given_again_is_another_process() {
        let this = Process::this().expect("told");
        assert_eq!(this, of(std::process::id()));
        assert!(!this.is_gone());
        assert!(Process { started: this.started - 1, ..this }.is_gone());
    }

    #[test]
    fn nobody_knows_of_other_hosts() {
        let this = Process::this().expect("told");
        let elsewhere = Process { host: "another".into(), started: 1, ..this };
        assert!(!elsewhere.is_gone());
        assert!(!Process { pid: -1, ..elsewhere }.is_gone());
    }

    #[test]
    fn a_process_is_as_old_as_its_start_says() {
        let own = age_of(std::process::id()).expect("told");
        let uptime = age_of(1).expect("told");
        assert!(own >= 0.0 && own <= uptime, "{own} of {uptime}");
        let child = Command::new("sleep").arg("600").spawn();
        let mut child = child.expect("runs");
        assert!(age_of(child.id()).expect("told") <= age_of(std::process::id()).expect("told"));
        child.kill().expect("killed");
        child.wait().expect("ends");
        assert_eq!(age_of(child.id()), None);
    }

    #[test]
    fn a_name_may_hold_anything() {
        let rest = "S 1 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 4711 1 1";
        let found = Stat::parse(format!("7 (a) Z (b) {rest}").as_bytes()).expect("reads");
        assert_eq!((found.state, found.threads, found.started), (b'S', 3, 4711));
        let leader = Stat::parse(format!("7 (x) {}", rest.replace('S', "Z")).as_bytes()).expect("reads");
        assert!(!leader.has_ended(), "its other threads run on");
        assert!(Stat::parse(b"7 (x) S 1").is_none());
    }
}
