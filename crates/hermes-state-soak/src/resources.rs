//! What a process has open and in memory, as `/proc` says.

use std::collections::BTreeSet;

/// Descriptors and resident memory of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Resources {
    pub(crate) descriptors: usize,
    pub(crate) kibibytes: u64,
}

/// What the allocator keeps, and larger answers from a store that has grown, explain no more than this over the start.
const MEMORY_TOLERANCE: u64 = 48 << 10;

impl Resources {
    pub(crate) fn of_this_process() -> Option<Self> {
        #[expect(clippy::disallowed_methods, reason = "a text of the kernel")]
        let status = std::fs::read_to_string("/proc/self/status").ok()?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        let kibibytes = line.trim().split(' ').next()?.parse().ok()?;
        // Threads of the store have descriptor tables of their own; those of one table show the same.
        let mut tables = BTreeSet::new();
        for thread in std::fs::read_dir("/proc/self/task").ok()?.flatten() {
            let mut table = BTreeSet::new();
            for descriptor in std::fs::read_dir(thread.path().join("fd")).into_iter().flatten().flatten() {
                let to = std::fs::read_link(descriptor.path()).map(|to| to.display().to_string()).unwrap_or_default();
                // The one that is looked with.
                if !to.starts_with("/proc/") {
                    table.insert((descriptor.file_name(), to));
                }
            }
            tables.insert(table);
        }
        Some(Self { descriptors: tables.iter().map(BTreeSet::len).sum(), kibibytes })
    }

    /// What is not back at the start.
    pub(crate) fn exceed(self, start: Self) -> Vec<String> {
        let mut exceeded = Vec::new();
        if self.descriptors > start.descriptors {
            exceeded.push(format!(
                "a process that opened and closed the store all the time has {} descriptors, at first {}",
                self.descriptors, start.descriptors
            ));
        }
        if self.kibibytes > start.kibibytes + MEMORY_TOLERANCE {
            exceeded.push(format!(
                "a process that opened and closed the store all the time takes {} KiB of memory, at first {}",
                self.kibibytes, start.kibibytes
            ));
        }
        exceeded
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn an_open_file_is_counted_and_what_is_more_than_at_first_is_told() {
        let before = Resources::of_this_process().expect("Linux");
        let file = tempfile::tempfile().expect("a file");
        let with = Resources::of_this_process().expect("Linux");
        drop(file);
        assert_eq!(with.descriptors, before.descriptors + 1);
        assert_eq!(with.exceed(Resources { kibibytes: with.kibibytes, ..before }).len(), 1);
        assert_eq!(
            with.exceed(Resources { kibibytes: 0, ..with }).len(),
            usize::from(with.kibibytes > MEMORY_TOLERANCE)
        );
        assert!(before.exceed(before).is_empty());
    }
}
