//! The account that a server runs under: PostgreSQL refuses to run as root.

use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;

use crate::system_calls;

/// The ids of an account that is not root's.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Account {
    user: u32,
    group: u32,
}

impl Account {
    /// The account to change to: `None` for anybody but root, who must change to none.
    pub(crate) fn of_servers() -> Option<Self> {
        if !system_calls::is_root() {
            return None;
        }
        Some(Self::named("postgres").or_else(|| Self::named("nobody")).unwrap_or(Self { user: 65_534, group: 65_534 }))
    }

    fn named(name: &str) -> Option<Self> {
        let id = |option| {
            let output =
                Command::new("id").args([option, name]).output().ok().filter(|output| output.status.success())?;
            String::from_utf8(output.stdout).ok()?.trim().parse().ok().filter(|id| *id != 0)
        };
        Some(Self { user: id("-u")?, group: id("-g")? })
    }

    pub(crate) fn run(self, command: &mut Command) {
        command.uid(self.user).gid(self.group);
    }

    pub(crate) fn own(self, path: &Path) {
        std::os::unix::fs::chown(path, Some(self.user), Some(self.group))
            .unwrap_or_else(|error| panic!("{} cannot be given to the server's account: {error}", path.display()));
    }
}
