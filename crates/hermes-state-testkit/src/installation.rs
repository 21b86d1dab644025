//! Finds the newest PostgreSQL installation of this machine.

use std::ffi::OsStr;
use std::fmt;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::shared::{PG_REQUIRED, PG_URL, server_required};

/// There are no programs of a PostgreSQL server on this machine.
#[derive(Debug)]
pub struct Missing(());

impl Missing {
    /// Skips a test, which is to return now: says so in one loud line, whether or not the test harness hides the output.
    /// `let Ok(server) = Server::start().inspect_err(Missing::skip) else { return };`
    ///
    /// # Panics
    ///
    /// Where the environment says that there must be a server ([`crate::PG_REQUIRED`]).
    pub fn skip(&self) {
        assert!(!server_required(), "{PG_REQUIRED} is set, but there is {self}");
        // The macros' output would be hidden.
        let _ = writeln!(std::io::stderr(), "SKIPPED: {self}");
    }
}

impl fmt::Display for Missing {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "no PostgreSQL server: install it (Debian: apt-get install postgresql) or set {PG_URL}")
    }
}

impl std::error::Error for Missing {}

/// A folder with the programs of one PostgreSQL version.
#[derive(Debug, Clone)]
pub(crate) struct Installation {
    folder: PathBuf,
}

impl Installation {
    /// The newest one among those on `PATH` and in the places where Debian, Red Hat and their like put them.
    pub(crate) fn newest() -> Result<Self, Missing> {
        let on_path = std::env::var_os("PATH").map(|path| std::env::split_paths(&path).collect()).unwrap_or_default();
        newest_of(on_path, &["/usr/lib/postgresql", "/usr"], version).map(|folder| Self { folder }).ok_or(Missing(()))
    }

    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.folder.join(name)
    }
}

/// `versions` hold a folder for each version: `15/bin`, `pgsql-15/bin`.
fn newest_of(on_path: Vec<PathBuf>, versions: &[&str], version: impl Fn(&Path) -> Option<Vec<u32>>) -> Option<PathBuf> {
    let beside = versions
        .iter()
        .filter_map(|folder| std::fs::read_dir(folder).ok())
        .flat_map(|entries| entries.filter_map(Result::ok).map(|entry| entry.path().join("bin")));
    on_path
        .into_iter()
        .chain(beside)
        // A link leads to the folder with all the programs.
        .filter_map(|folder| Some(folder.join("initdb").canonicalize().ok()?.parent()?.to_owned()))
        .filter_map(|folder| Some((version(&folder.join("postgres"))?, folder)))
        .max_by(|one, other| one.0.cmp(&other.0))
        .map(|(_, folder)| folder)
}

/// `postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)` is version 15.14.
fn version(postgres: &Path) -> Option<Vec<u32>> {
    let output = Command::new(postgres).arg("--version").output().ok().filter(|output| output.status.success())?;
    parse_version(&String::from_utf8_lossy(&output.stdout))
}

fn parse_version(text: &str) -> Option<Vec<u32>> {
    let number = text.split_once("(PostgreSQL) ")?.1.split_whitespace().next()?;
    // Versions before their release are called `18beta1`.
    let digits: String = number.chars().take_while(|letter| letter.is_ascii_digit() || *letter == '.').collect();
    digits.split('.').map(|part| part.parse().ok()).collect()
}

/// A program that is told where the server is by its arguments alone, whatever the environment says.
pub(crate) fn client(program: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(program);
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("PG")) {
            command.env_remove(name);
        }
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_ordered_by_number() {
        let read = |text| parse_version(text).unwrap();
        assert_eq!(read("postgres (PostgreSQL) 15.14 (Debian 15.14-0+deb12u1)\n"), [15, 14]);
        assert_eq!(read("postgres (PostgreSQL) 18beta1\n"), [18]);
        assert!(read("postgres (PostgreSQL) 9.6.24") < read("postgres (PostgreSQL) 15.2"));
        assert!(read("postgres (PostgreSQL) 15.9") < read("postgres (PostgreSQL) 15.10"));
        assert_eq!(parse_version("sqlite 3"), None);
    }

    #[test]
    fn the_newest_is_taken_wherever_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let root = folder.path().canonicalize().unwrap();
        let make = |place: &str| {
            let bin = root.join(place);
            std::fs::create_dir_all(&bin).unwrap();
            #[expect(clippy::disallowed_methods, reason = "a file of this test")]
            std::fs::write(bin.join("initdb"), "").unwrap();
            bin
        };
        let (old, new, broken) = (make("versions/9/bin"), make("versions/15/bin"), make("versions/99/bin"));
        let on_path = make("14");
        // One program alone, as an administrator may link it.
        let linked = root.join("versions/linked/bin");
        std::fs::create_dir_all(&linked).unwrap();
        std::os::unix::fs::symlink(new.join("initdb"), linked.join("initdb")).unwrap();
        let version = |postgres: &Path| {
            let folder = postgres.parent()?;
            let number = if folder.ends_with("bin") { folder.parent()? } else { folder };
            number.file_name()?.to_str()?.parse().ok().filter(|number| *number != 99).map(|number| vec![number])
        };
        let versions = root.join("versions");
        let found = |path: &Path| newest_of(vec![path.to_owned()], &[versions.to_str().unwrap()], version);
        assert_eq!(found(&on_path), Some(new.clone()));
        assert_eq!(found(&linked), Some(new));
        assert_eq!(found(&make("16")), Some(root.join("16")));
        assert_eq!(newest_of(vec![old.clone(), broken, versions], &[], version), Some(old));
    }
}
