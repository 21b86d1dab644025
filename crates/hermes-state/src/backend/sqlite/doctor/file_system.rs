//! The file system of a store: its kind, and whether locks and shared memory hold on it, tried with a file of our own.

use std::path::{Path, PathBuf};

#[cfg(unix)]
use super::sys;
use crate::doctor::{FileSystem, Probe};

/// Kinds that other hosts share, or that a program makes up: what they say of locks and shared memory holds on this
/// host alone, if there.
const SHARED: [&str; 13] =
    ["nfs", "nfs4", "cifs", "smb3", "smbfs", "9p", "afs", "ceph", "glusterfs", "lustre", "ncpfs", "vboxsf", "gfs2"];

/// Whether stores are better kept elsewhere.
pub(super) fn is_shared(kind: &str) -> bool {
    SHARED.contains(&kind) || kind.starts_with("fuse.") || kind == "fuse"
}

/// Looks at the file system of a folder, or of where it would be. Leaves nothing behind.
pub(super) fn examine(folder: &Path) -> FileSystem {
    let nearest = folder.ancestors().find(|ancestor| ancestor.is_dir()).unwrap_or(Path::new("/"));
    let (kind, mount) = mounted(nearest).map_or((None, None), |(kind, mount)| (Some(kind), Some(mount)));
    let scratch =
        if nearest == folder { Scratch::in_folder(folder) } else { Err("the folder does not exist yet".into()) };
    let (shared_memory, locks) = match scratch {
        Ok(scratch) => (scratch.try_memory(), scratch.try_locks()),
        Err(why) => (Probe::NotTested(why.clone()), Probe::NotTested(why)),
    };
    FileSystem { kind, mount, free_bytes: free_bytes(nearest), shared_memory, locks }
}

#[cfg(unix)]
fn free_bytes(folder: &Path) -> Option<u64> {
    sys::free_bytes(folder)
}

#[cfg(not(unix))]
fn free_bytes(_folder: &Path) -> Option<u64> {
    None
}

/// Kind and place of the mount that a path is on, by the kernel's list; the last of those with the longest path is on
/// top.
#[expect(clippy::disallowed_methods, reason = "a file of the kernel, never a store")]
fn mounted(path: &Path) -> Option<(String, PathBuf)> {
    let list = std::fs::read_to_string("/proc/self/mountinfo").ok()?;
    let path = path.canonicalize().ok()?;
    list.lines()
        .filter_map(parse)
        .filter(|(_, mount)| path.starts_with(mount))
        .max_by_key(|(_, mount)| mount.components().count())
}

/// A line of the list: six fields, the fifth being the place, optional ones, a hyphen, and the kind.
fn parse(line: &str) -> Option<(String, PathBuf)> {
    let (before, behind) = line.split_once(" - ")?;
    let place = before.split(' ').nth(4)?;
    Some((behind.split(' ').next()?.to_owned(), PathBuf::from(unescaped(place))))
}

/// Spaces and the like are written as three octal digits.
fn unescaped(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let code = behind.get(..3).filter(|_| *first == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &behind[3..];
            }
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// A file without a name, opened twice: two owners of locks.
struct Scratch {
    #[cfg_attr(not(unix), expect(dead_code, reason = "nothing is tried there"))]
    owners: [std::fs::File; 2],
}

impl Scratch {
    /// Makes it in the folder and takes its name away, so that nothing is left whatever happens; says why where it
    /// cannot be made.
    #[expect(clippy::disallowed_methods, reason = "a new file of our own that nobody holds a lock on")]
    fn in_folder(folder: &Path) -> Result<Self, String> {
        let name = format!(".hermes-state-doctor-{}-{}", std::process::id(), uuid::Uuid::now_v7().simple());
        let path = folder.join(name);
        let open = |new: bool| {
            let mut options = std::fs::OpenOptions::new();
            options.read(true).write(true).create_new(new);
            #[cfg(unix)]
            if new {
                std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
            }
            options.open(&path)
        };
        let told = |error: std::io::Error| format!("no file can be made in {}: {error}", folder.display());
        let first = open(true).map_err(told)?;
        let second = open(false);
        let removed = std::fs::remove_file(&path);
        let owners = [first, second.map_err(told)?];
        removed.map_err(|error| format!("{} cannot be removed: {error}", path.display()))?;
        Ok(Self { owners })
    }

    /// One owner locks, the other must be kept out until it lets go.
    #[cfg(target_os = "linux")]
    fn try_locks(&self) -> Probe {
        let [one, other] = &self.owners;
        let tried = || -> std::io::Result<Probe> {
            if !sys::lock(one, true)? {
                return Ok(Probe::Fails("a lock on a file that nobody else has was refused".to_owned()));
            }
            if sys::lock(other, true)? {
                return Ok(Probe::Fails("two owners got the same lock at once".to_owned()));
            }
            sys::lock(one, false)?;
            if !sys::lock(other, true)? {
                return Ok(Probe::Fails("a lock stays taken after its owner has let it go".to_owned()));
            }
            Ok(Probe::Works)
        };
        tried().unwrap_or_else(|error| Probe::Fails(error.to_string()))
    }

    #[cfg(not(target_os = "linux"))]
    fn try_locks(&self) -> Probe {
        Probe::NotTested("locks with two owners in one process are only known on Linux".to_owned())
    }

    /// What is written through one mapping must be seen through the other, and in the file.
    #[cfg(unix)]
    fn try_memory(&self) -> Probe {
        use std::io::Write as _;
        let [one, other] = &self.owners;
        let tried = || -> std::io::Result<Probe> {
            // Real blocks: writing into a hole on a full disk ends the process.
            (&*one).write_all(&vec![1; sys::Shared::LENGTH])?;
            let (here, there) = (sys::Shared::map(one)?, sys::Shared::map(other)?);
            for value in [7, 8] {
                here.set_byte(value);
                if there.byte() != value {
                    return Ok(Probe::Fails("what one maps and writes another does not see".to_owned()));
                }
            }
            Ok(Probe::Works)
        };
        tried().unwrap_or_else(|error| match error.raw_os_error() {
            Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => Probe::NotTested(format!("no room for a file: {error}")),
            _ => Probe::Fails(error.to_string()),
        })
    }

    #[cfg(not(unix))]
    fn try_memory(&self) -> Probe {
        Probe::NotTested("shared memory is not tried on this system".to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_list_of_mounts_is_understood() {
        let line = r"36 35 98:0 /mnt1 /mnt/a\040b rw,noatime master:1 - ext3 /dev/root rw,errors=continue";
        assert_eq!(parse(line), Some(("ext3".to_owned(), PathBuf::from("/mnt/a b"))));
        assert_eq!(parse("nonsense"), None);
    }

    #[test]
    fn kinds_that_hosts_share_are_known() {
        assert!(["nfs4", "fuse.sshfs", "cifs"].into_iter().all(is_shared));
        assert!(["ext4", "tmpfs", "overlay", "fuseblk", "xfs"].into_iter().all(|kind| !is_shared(kind)));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_folder_is_tried_and_nothing_left_in_it() {
        let folder = tempfile::tempdir().expect("a folder");
        let found = examine(folder.path());
        assert_eq!((found.locks, found.shared_memory), (Probe::Works, Probe::Works));
        assert!(found.kind.is_some() && found.mount.is_some() && found.free_bytes > Some(0));
        assert_eq!(std::fs::read_dir(folder.path()).expect("lists").count(), 0);
        let missing = examine(&folder.path().join("absent"));
        assert!(matches!(missing.locks, Probe::NotTested(_)), "{missing:?}");
    }
}
