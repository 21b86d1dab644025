//! Which descriptors SQLite has on which file, which one carries its locks, and what becomes of those it closed.
//!
//! All locks of one file live on one description, the *canonical*, as SQLite counts them per file and not per
//! descriptor. A descriptor of a lockable file is never closed when SQLite says so, for that would drop the POSIX locks
//! of every other library in the process: it is *parked* and handed out again at the next suitable `open`.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_int};
use std::mem;
use std::os::fd::RawFd;

use super::ranges::Ranges;
use super::sys::{self, Identity, WHOLE_FILE};

/// So many parked descriptors of files that nobody here uses are kept before any is given up. Giving one up takes an
/// exclusive lock for a moment, which a neighbour without patience would notice, so it is not done at every close.
const PARKED_AT_MOST: usize = 64;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Role {
    /// SQLite has it open.
    Live,
    /// SQLite has it open, but the locks it believes to hold went with a canonical that somebody else closed.
    Orphaned,
    /// SQLite closed it.
    Parked,
    /// A log, journal or temporary file: it carries no locks and is closed for good when SQLite closes it.
    Unlockable,
}

struct Slot {
    identity: Identity,
    writable: bool,
    role: Role,
}

struct Inode {
    canonical: RawFd,
    members: Vec<RawFd>,
    /// What is read-locked while the canonical is read-only: a writable one has to take these over.
    shared: Ranges,
}

/// What the caller has still to do to close a descriptor.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Closing {
    CloseIt,
    Parked,
    NotOpen,
}

pub(super) struct Registry {
    /// By descriptor number, so that a lock call needs to ask the kernel nothing but the lock itself.
    slots: Vec<Option<Slot>>,
    inodes: BTreeMap<Identity, Inode>,
    /// Pages that SQLite mapped from files; each keeps its description alive like a descriptor.
    pub(super) mapped: Ranges,
    /// How often the canonical of a file was lost. What SQLite remembers of such a file is void.
    epochs: BTreeMap<Identity, u64>,
}

impl Registry {
    pub(super) const fn new() -> Self {
        Self { slots: Vec::new(), inodes: BTreeMap::new(), mapped: Ranges::new(), epochs: BTreeMap::new() }
    }

    fn slot(&self, descriptor: RawFd) -> Option<&Slot> {
        self.slots.get(usize::try_from(descriptor).ok()?)?.as_ref()
    }

    fn slot_mut(&mut self, descriptor: RawFd) -> Option<&mut Slot> {
        self.slots.get_mut(usize::try_from(descriptor).ok()?)?.as_mut()
    }

    fn take_slot(&mut self, descriptor: RawFd) -> Option<Slot> {
        self.slots.get_mut(usize::try_from(descriptor).ok()?)?.take()
    }

    fn has_role(&self, descriptor: RawFd, role: Role) -> bool {
        self.slot(descriptor).is_some_and(|slot| slot.role == role)
    }

    fn is_writable(&self, descriptor: RawFd) -> bool {
        self.slot(descriptor).is_some_and(|slot| slot.writable)
    }

    fn members(&self, identity: Identity) -> &[RawFd] {
        self.inodes.get(&identity).map_or(&[], |inode| &inode.members)
    }

    fn is_live(&self, identity: Identity) -> bool {
        self.members(identity).iter().any(|member| self.has_role(*member, Role::Live))
    }

    /// How often SQLite's knowledge of this file became void.
    pub(super) fn epoch(&self, identity: Identity) -> u64 {
        self.epochs.get(&identity).copied().unwrap_or(0)
    }

    /// Enters a descriptor that SQLite just opened.
    pub(super) fn register(&mut self, descriptor: RawFd, identity: Identity, writable: bool, lockable: bool) {
        let Ok(index) = usize::try_from(descriptor) else { return };
        if self.slots.len() <= index {
            self.slots.resize_with(index + 1, || None);
        }
        self.slots[index] = Some(Slot { identity, writable, role: Role::Unlockable });
        if lockable {
            self.verify(identity);
            self.join(descriptor);
        }
    }

    /// Makes a registered descriptor one of its file's members, and its canonical if there is none or none so good.
    fn join(&mut self, descriptor: RawFd) {
        let Some(slot) = self.slot_mut(descriptor) else { return };
        slot.role = Role::Live;
        let (identity, writable) = (slot.identity, slot.writable);
        let inode = self.inodes.entry(identity).or_insert_with(|| Inode {
            canonical: descriptor,
            members: Vec::new(),
            shared: Ranges::new(),
        });
        if !inode.members.contains(&descriptor) {
            inode.members.push(descriptor);
        }
        let canonical = inode.canonical;
        if writable && !self.is_writable(canonical) {
            self.promote(descriptor, identity);
        }
    }

    /// Moves the locks of a read-only canonical to a writable descriptor, taking before dropping.
    fn promote(&mut self, descriptor: RawFd, identity: Identity) {
        let Some(inode) = self.inodes.get_mut(&identity) else { return };
        if inode.shared.iter().all(|bytes| sys::set_lock(descriptor, libc::F_RDLCK, bytes)) {
            sys::set_lock(inode.canonical, libc::F_UNLCK, WHOLE_FILE);
            inode.canonical = descriptor;
            inode.shared.clear();
        } else {
            sys::set_lock(descriptor, libc::F_UNLCK, WHOLE_FILE);
        }
    }

    /// A parked descriptor that is what `open` would give, now live again.
    pub(super) fn reuse(&mut self, path: &CStr, writable: bool) -> Option<RawFd> {
        if self.inodes.is_empty() {
            return None;
        }
        let found = sys::facts_at(path).filter(|found| found.regular)?.identity;
        self.verify(found);
        let parked = self.members(found).iter().copied().find(|member| {
            self.slot(*member).is_some_and(|slot| slot.role == Role::Parked && slot.writable == writable)
        })?;
        if !sys::permits(path, writable) {
            return None;
        }
        self.join(parked);
        Some(parked)
    }

    /// `F_SETLK` as SQLite means it; the error is an `errno`.
    pub(super) fn set_lock(&mut self, descriptor: RawFd, lock: &mut libc::flock) -> Result<(), c_int> {
        let kind = c_int::from(lock.l_type);
        let Some(canonical) = self.canonical(descriptor) else {
            // Unknown ones are a parent's, or lost: they have no locks, which is what an unlock asks for.
            return if kind == libc::F_UNLCK { Ok(()) } else { Err(libc::EBADF) };
        };
        if kind == libc::F_WRLCK && !self.is_writable(descriptor) {
            return Err(libc::EBADF);
        }
        if sys::lock_description(canonical, libc::F_OFD_SETLK, lock) != 0 {
            return Err(sys::errno());
        }
        if !self.is_writable(canonical) {
            self.note_shared(descriptor, kind, lock);
        }
        Ok(())
    }

    fn note_shared(&mut self, descriptor: RawFd, kind: c_int, lock: &libc::flock) {
        let Some(identity) = self.slot(descriptor).map(|slot| slot.identity) else { return };
        let Some(inode) = self.inodes.get_mut(&identity) else { return };
        let start = lock.l_start.cast_unsigned();
        let end = if lock.l_len == 0 { i64::MAX.cast_unsigned() } else { start + lock.l_len.cast_unsigned() };
        if kind == libc::F_UNLCK { inode.shared.remove(start, end) } else { inode.shared.insert(start, end) }
    }

    /// `F_GETLK` as SQLite means it.
    pub(super) fn get_lock(&mut self, descriptor: RawFd, lock: &mut libc::flock) -> Result<(), c_int> {
        let canonical = self.canonical(descriptor).ok_or(libc::EBADF)?;
        if sys::lock_description(canonical, libc::F_OFD_GETLK, lock) == 0 { Ok(()) } else { Err(sys::errno()) }
    }

    fn canonical(&mut self, descriptor: RawFd) -> Option<RawFd> {
        if self.has_role(descriptor, Role::Unlockable) {
            // Its name promised that nobody would lock it; somebody called a database so.
            self.join(descriptor);
        }
        let slot = self.slot(descriptor).filter(|slot| slot.role == Role::Live)?;
        Some(self.inodes.get(&slot.identity)?.canonical)
    }

    /// SQLite closes a descriptor.
    pub(super) fn close(&mut self, descriptor: RawFd) -> Closing {
        let Some(slot) = self.slot_mut(descriptor) else { return Closing::CloseIt };
        let identity = slot.identity;
        match mem::replace(&mut slot.role, Role::Parked) {
            Role::Parked => return Closing::NotOpen,
            Role::Unlockable => {
                self.take_slot(descriptor);
                return Closing::CloseIt;
            }
            Role::Live | Role::Orphaned => {}
        }
        if !self.is_live(identity) {
            self.verify(identity);
            if let Some(inode) = self.inodes.get_mut(&identity) {
                // SQLite counts on `close` to drop what it did not unlock, such as the deadman switch in the `-shm`.
                sys::set_lock(inode.canonical, libc::F_UNLCK, WHOLE_FILE);
                inode.shared.clear();
            }
        }
        self.sweep();
        Closing::Parked
    }

    /// Forgets the descriptors of a file that somebody closed behind our back, whatever their numbers mean now.
    pub(super) fn verify(&mut self, identity: Identity) {
        let is_lost = |member: &RawFd| sys::facts_of(*member).is_none_or(|facts| facts.identity != identity);
        let lost: Vec<RawFd> = self.members(identity).iter().copied().filter(is_lost).collect();
        for descriptor in lost {
            self.lose(descriptor);
        }
    }

    /// Forgets a descriptor that is no longer what was registered. If it was the canonical, the locks went with it:
    /// those who relied on them get no new ones, and whoever opens the file next starts from nothing.
    pub(super) fn lose(&mut self, descriptor: RawFd) {
        let Some(slot) = self.take_slot(descriptor) else { return };
        let Some(inode) = self.inodes.get_mut(&slot.identity) else { return };
        inode.members.retain(|member| *member != descriptor);
        if inode.canonical != descriptor {
            return;
        }
        *self.epochs.entry(slot.identity).or_default() += 1;
        let members = self.inodes.remove(&slot.identity).map(|inode| inode.members).unwrap_or_default();
        for member in &members {
            if let Some(slot) = self.slot_mut(*member)
                && slot.role == Role::Live
            {
                slot.role = Role::Orphaned;
            }
        }
        let heir = members.iter().copied().max_by_key(|member| self.is_writable(*member));
        if let Some(canonical) = heir {
            self.inodes.insert(slot.identity, Inode { canonical, members, shared: Ranges::new() });
        }
    }

    /// Gives up files that nobody here has open: the deleted ones, whose space they hold, and those above the limit.
    fn sweep(&mut self) {
        let is_parked = |member: &RawFd| self.has_role(*member, Role::Parked);
        let idle: Vec<Identity> = self
            .inodes
            .iter()
            .filter(|(_, inode)| inode.members.iter().all(is_parked))
            .map(|(identity, _)| *identity)
            .collect();
        let parked: usize = idle.iter().map(|identity| self.members(*identity).len()).sum();
        let mut surplus = parked.saturating_sub(PARKED_AT_MOST);
        for identity in idle {
            self.verify(identity);
            let Some(inode) = self.inodes.get(&identity) else { continue };
            let deleted = sys::facts_of(inode.canonical).is_some_and(|facts| facts.deleted);
            if deleted || surplus > 0 {
                surplus = surplus.saturating_sub(self.retire(identity, deleted));
            }
        }
    }

    /// Closes the descriptors of an idle file unless somebody in this process may lose a lock by it; tells how many.
    fn retire(&mut self, identity: Identity, deleted: bool) -> usize {
        let Some(Inode { canonical, members, .. }) = self.inodes.get(&identity) else { return 0 };
        let canonical = *canonical;
        // While we hold the whole file exclusively nobody else has any lock on it that a close could drop, and the
        // kernel releases ours last. A read-only descriptor cannot do that, so there a look must suffice, and only
        // where no new reader can come.
        let nobody_has_locks = if self.is_writable(canonical) {
            sys::set_lock(canonical, libc::F_WRLCK, WHOLE_FILE)
        } else {
            deleted && sys::set_lock(canonical, libc::F_RDLCK, WHOLE_FILE) && sys::is_unlocked(canonical)
        };
        if !nobody_has_locks {
            sys::set_lock(canonical, libc::F_UNLCK, WHOLE_FILE);
            return 0;
        }
        let members = members.clone();
        for member in members.iter().copied().filter(|member| *member != canonical).chain([canonical]) {
            sys::close(member);
            self.take_slot(member);
        }
        self.inodes.remove(&identity);
        members.len()
    }

    /// What a forked child does with its inheritance: each descriptor and mapping would keep the parent's locks alive.
    ///
    /// Covers descriptors instead of closing them, so that their numbers are not given out while an inherited
    /// connection still uses them. Allocates and frees nothing: other threads of the parent may have been doing so.
    pub(super) fn disinherit(&mut self, cover: RawFd, replace_pages: impl Fn(u64, u64)) {
        let parents = mem::replace(self, Self::new());
        for (descriptor, slot) in (0..).zip(&parents.slots) {
            if let Some(slot) = slot
                && sys::facts_of(descriptor).is_some_and(|facts| facts.identity == slot.identity)
            {
                sys::cover(descriptor, cover);
            }
        }
        for (start, end) in parents.mapped.iter() {
            replace_pages(start, end);
        }
        mem::forget(parents);
    }
}
