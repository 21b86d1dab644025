//! What the siblings promise, mostly with real processes: the test binary runs itself as one of them.
#![expect(unsafe_code, reason = "forking and signals")]
#![expect(clippy::disallowed_methods, reason = "scratch files, none of them a store")]

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, symlink};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Barrier, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::mapping::{IDENTITY, Layout, SLOTS};
use super::*;
use crate::backend::sqlite::lock::crew;

const ROLE: &str = "HERMES_STATE_TEST_SIBLING";
const FOLDER: &str = "HERMES_STATE_TEST_FOLDER";
const SLICE: Duration = Duration::from_millis(50);
const SECOND: Duration = Duration::from_secs(1);

/// A folder with a store that does not exist and a lock that stands for SQLite's.
struct World(TempDir);

impl World {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn store(&self) -> PathBuf {
        self.path("state.db")
    }

    fn join(&self) -> Siblings {
        let siblings = Siblings::join(&self.store());
        assert!(siblings.has_slot(), "a slot is to be had");
        siblings
    }

    /// Starts this binary again as a sibling with that role.
    fn start(&self, role: &str) -> Process {
        let child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "--nocapture", "backend::sqlite::siblings::tests::a_process_of_its_own"])
            .env(ROLE, role)
            .env(FOLDER, self.0.path())
            .stdout(Stdio::null())
            .spawn()
            .expect("a process");
        Process(child)
    }

    /// Waits for a file that a process makes to say that it has come so far.
    fn wait_for(&self, name: &str) -> String {
        wait_for(&self.path(name))
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).expect("a file that a process wrote")
    }
}

/// A place in line that is left when its scope ends.
struct Turn<'s> {
    siblings: &'s mut Siblings,
    place: Option<Place>,
}

impl Turn<'_> {
    fn place(&mut self) -> (&mut Place, &Siblings) {
        (self.place.as_mut().expect("kept until the drop"), self.siblings)
    }

    fn wait(&mut self, at_most: Duration) -> Standing {
        let (place, siblings) = self.place();
        place.wait(siblings, at_most)
    }

    fn holding(&mut self, operation: Operation) {
        let (place, siblings) = self.place();
        place.holding(siblings, operation);
    }

    fn siblings(&self) -> &Siblings {
        self.siblings
    }

    fn ticket(&self) -> u64 {
        self.place.as_ref().expect("kept until the drop").ticket
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.place.take().expect("kept until the drop").leave(self.siblings);
    }
}

trait LineUp {
    fn line_up(&mut self) -> Turn<'_>;
}

impl LineUp for Siblings {
    fn line_up(&mut self) -> Turn<'_> {
        let place = Some(Place::take(self, Operation::Write));
        Turn { siblings: self, place }
    }
}

/// A process that does not outlive its test.
struct Process(Child);

impl Process {
    fn signal(&self, signal: i32) {
        // SAFETY: a process of this test that has not been waited for, so the number is still its own.
        assert_eq!(unsafe { libc::kill(self.0.id().cast_signed(), signal) }, 0);
    }

    fn kill(&mut self) {
        self.0.kill().expect("a process to kill");
        assert_eq!(self.0.wait().expect("its end").signal(), Some(libc::SIGKILL));
    }

    fn finish(mut self) {
        assert!(self.0.wait().expect("its end").success(), "the process was content");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn wait_for(path: &Path) -> String {
    let start = Instant::now();
    while !path.exists() {
        assert!(start.elapsed() < 20 * SECOND, "{} comes", path.display());
        thread::sleep(Duration::from_millis(1));
    }
    fs::read_to_string(path).expect("the file")
}

/// Tells the test that waits for it, in one step.
fn say(path: &Path, text: &str) {
    let draft = path.with_extension("draft");
    fs::write(&draft, text).and_then(|()| fs::rename(&draft, path)).expect("a file in the folder");
}

/// The lock that stands for SQLite's: refused while another holds it, dropped by the kernel at death.
fn open_lock(folder: &Path) -> File {
    OpenOptions::new().create(true).append(true).open(folder.join("lock")).expect("the lock")
}

/// Waits as the gate does until it has the lock; counts how often the first in line was refused.
fn begin(turn: &mut Turn<'_>, lock: &File) -> u64 {
    let mut refused = 0;
    loop {
        match turn.wait(SLICE) {
            Standing::Behind => {}
            Standing::Overdue if lock.try_lock().is_ok() => return refused,
            Standing::Overdue => {}
            Standing::First | Standing::Unordered if lock.try_lock().is_ok() => return refused,
            Standing::First | Standing::Unordered => {
                refused += 1;
                thread::sleep(Duration::from_micros(500));
            }
        }
    }
}

/// No test of its own: the life of the processes that the tests start.
#[test]
fn a_process_of_its_own() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).expect("a folder"));
    let mut siblings = Siblings::join(&folder.join("state.db"));
    let lock = open_lock(&folder);
    match role.as_str() {
        "writer" => write_for_a_while(&folder, &mut siblings, &lock),
        "holder" => {
            let mut turn = siblings.line_up();
            begin(&mut turn, &lock);
            turn.holding(Operation::Vacuum);
            say(&folder.join("holding"), "");
            thread::sleep(60 * SECOND);
        }
        "waiter" => {
            let mut turn = siblings.line_up();
            say(&folder.join("waiting"), "");
            begin(&mut turn, &lock);
        }
        // Comes first and does nothing with it until it is stopped and let go on.
        "idler" => {
            let mut turn = siblings.line_up();
            assert_eq!(turn.wait(SLICE), Standing::First);
            let first = turn.ticket();
            say(&folder.join("first"), "");
            wait_for(&folder.join("go on"));
            begin(&mut turn, &lock);
            assert!(turn.ticket() > first, "it has lined up again");
            say(&folder.join("first again"), "");
        }
        "parent" => {
            let mut words = File::create(folder.join("child said")).expect("a file");
            // SAFETY: the child only stores atomics, writes to a descriptor and sleeps.
            match unsafe { libc::fork() } {
                0 => {
                    let _ = words.write_all(if siblings.has_slot() { b"member" } else { b"stranger" });
                    drop(siblings);
                    thread::sleep(60 * SECOND);
                    // SAFETY: ends the child without running what belongs to its parent.
                    unsafe { libc::_exit(0) }
                }
                child => say(&folder.join("forked"), &child.to_string()),
            }
            thread::sleep(60 * SECOND);
        }
        other => panic!("no role {other}"),
    }
}

/// One writer of eight: as many turns as come in two seconds, each written down.
fn write_for_a_while(folder: &Path, siblings: &mut Siblings, lock: &File) {
    let me = std::process::id();
    say(&folder.join(format!("ready {me}")), "");
    let end: u64 = wait_for(&folder.join("go")).parse().expect("a time");
    let mut refusals = 0;
    while futex::now() < end {
        let mut turn = siblings.line_up();
        refusals += begin(&mut turn, lock);
        turn.holding(Operation::Write);
        let mut log = lock;
        log.write_all(format!("{me} {}\n", turn.ticket()).as_bytes()).expect("a line");
        thread::sleep(Duration::from_micros(500));
        lock.unlock().expect("to unlock");
    }
    say(&folder.join(format!("refusals {me}")), &refusals.to_string());
}

#[test]
fn eight_processes_write_in_the_order_in_which_they_came_and_equally_often() {
    let world = World::new();
    let writers: Vec<Process> = (0..8).map(|_| world.start("writer")).collect();
    for writer in &writers {
        world.wait_for(&format!("ready {}", writer.0.id()));
    }
    say(&world.path("go"), &(futex::now() + 2_000_000_000).to_string());
    let pids: Vec<u32> = writers.iter().map(|writer| writer.0.id()).collect();
    writers.into_iter().for_each(Process::finish);

    let log = world.read("lock");
    let turns: Vec<(u32, u64)> = log
        .lines()
        .filter_map(|line| line.split_once(' '))
        .map(|(pid, ticket)| (pid.parse().expect("a number"), ticket.parse().expect("a ticket")))
        .collect();
    let counts: Vec<usize> = pids.iter().map(|pid| turns.iter().filter(|turn| turn.0 == *pid).count()).collect();
    let (least, most) = (counts.iter().min().expect("eight"), counts.iter().max().expect("eight"));
    assert!(*least >= 50, "each has had its turns: {counts:?}");
    assert!(most * 10 <= least * 11, "within a tenth of each other: {counts:?}");

    // On a busy machine somebody may be kept from the processor for so long that it is passed over; that is rare.
    let out_of_order = turns.windows(2).filter(|pair| pair[0].1 > pair[1].1).count();
    assert!(out_of_order * 100 <= turns.len(), "{out_of_order} of {} out of order", turns.len());
    let refused: usize =
        pids.iter().map(|pid| world.read(&format!("refusals {pid}")).parse::<usize>().expect("a number")).sum();
    assert!(refused * 100 <= turns.len(), "whoever is first meets nobody at the lock: {refused} of {}", turns.len());
}

#[test]
fn a_killed_holder_is_followed_at_once() {
    // A busy machine may keep the next one from the processor for once, but not each time.
    let quickest = (0..5).map(|_| time_to_follow_a_killed_holder()).find(|time| *time < Duration::from_millis(50));
    assert!(quickest.is_some(), "it looks after the one before it, long before that is overdue");
}

fn time_to_follow_a_killed_holder() -> Duration {
    let world = World::new();
    let mut holder = world.start("holder");
    world.wait_for("holding");
    let (mut siblings, lock) = (world.join(), open_lock(world.0.path()));
    thread::sleep(Duration::from_millis(30));
    let mut turn = siblings.line_up();
    assert_eq!(turn.wait(Duration::ZERO), Standing::Behind);
    let seen = turn.siblings().holder().expect("a holder");
    assert_eq!((seen.pid, seen.operation), (holder.0.id(), Some("vacuuming")));
    assert!(seen.holding_for >= Some(Duration::from_millis(30)) && seen.waiting_for.is_none());

    let killer = thread::spawn(move || {
        thread::sleep(Duration::from_millis(10));
        let killed = Instant::now();
        holder.kill();
        killed
    });
    // In one wait, so that it is not the end of a slice that makes it look.
    turn.wait(SECOND);
    begin(&mut turn, &lock);
    let followed = Instant::now();
    let killed = killer.join().expect("a kill");
    assert_eq!(turn.siblings().holder(), None, "the dead hold nothing");
    followed - killed
}

#[test]
fn a_killed_waiter_is_left_out() {
    let world = World::new();
    let (mut first, mut last) = (world.join(), world.join());
    let mut turn = first.line_up();
    let lock = open_lock(world.0.path());
    begin(&mut turn, &lock);
    turn.holding(Operation::Write);
    let mut waiter = world.start("waiter");
    world.wait_for("waiting");
    assert!(turn.siblings().list().iter().any(|other| other.pid == waiter.0.id() && other.waiting_for.is_some()));
    let mut next = last.line_up();
    assert_eq!(next.wait(Duration::ZERO), Standing::Behind);
    waiter.kill();
    lock.unlock().expect("to unlock");
    drop(turn);
    assert_eq!(next.wait(Duration::ZERO), Standing::First);
}

#[test]
fn the_next_is_woken_and_not_found_by_chance() {
    let world = World::new();
    let mut quickest = SECOND;
    for _ in 0..20 {
        let mut first = world.join();
        let mut turn = first.line_up();
        assert_eq!(turn.wait(SLICE), Standing::First);
        let (send, receive) = mpsc::channel();
        let store = world.store();
        let next = thread::spawn(move || {
            let mut siblings = Siblings::join(&store);
            let mut turn = siblings.line_up();
            send.send(()).expect("a listener");
            assert_eq!(turn.wait(SECOND), Standing::First);
            Instant::now()
        });
        receive.recv().expect("in line");
        thread::sleep(Duration::from_millis(5));
        let left = Instant::now();
        drop(turn);
        quickest = quickest.min(next.join().expect("a turn") - left);
    }
    assert!(quickest < Duration::from_millis(3), "{quickest:?} without looking only every 20 ms");
}

#[test]
fn one_that_is_stopped_while_it_is_first_is_passed_over_and_lines_up_again() {
    let world = World::new();
    let idler = world.start("idler");
    world.wait_for("first");
    idler.signal(libc::SIGSTOP);
    let mut siblings = world.join();
    let start = Instant::now();
    let mut turn = siblings.line_up();
    assert_eq!(turn.wait(5 * SECOND), Standing::Overdue);
    assert!((100..1000).contains(&start.elapsed().as_millis()), "{:?}", start.elapsed());
    assert_eq!(turn.wait(SECOND), Standing::Overdue, "again and again, while SQLite's lock is refused");
    assert!(start.elapsed() > Duration::from_millis(118), "but not in a hurry");
    turn.holding(Operation::Write);
    drop(turn);
    let mut turn = siblings.line_up();
    assert_eq!(turn.wait(Duration::ZERO), Standing::First, "only one had to wait for the stopped one");
    drop(turn);

    say(&world.path("go on"), "");
    idler.signal(libc::SIGCONT);
    world.wait_for("first again");
    idler.finish();
}

#[test]
fn one_that_keeps_trying_is_not_passed_over() {
    let world = World::new();
    let (ready, enough) = (Arc::new(Barrier::new(2)), Arc::new(AtomicU64::new(0)));
    let first = thread::spawn({
        let (store, ready, enough) = (world.store(), Arc::clone(&ready), Arc::clone(&enough));
        move || {
            let mut siblings = Siblings::join(&store);
            let mut turn = siblings.line_up();
            ready.wait();
            while enough.load(Ordering::Relaxed) == 0 {
                assert_eq!(turn.wait(SLICE), Standing::First);
                thread::sleep(Duration::from_micros(500));
            }
        }
    });
    ready.wait();
    let mut siblings = world.join();
    // The first may be kept from the processor for once, which looks like standing still.
    let kept_behind = (0..4).any(|_| siblings.line_up().wait(Duration::from_millis(300)) == Standing::Behind);
    assert!(kept_behind, "the first in line is awake");
    enough.store(1, Ordering::Relaxed);
    first.join().expect("the first");
}

#[test]
fn more_stores_than_slots_all_go_on() {
    let world = World::new();
    let everybody = Arc::new(Barrier::new(SLOTS + 2));
    let threads: Vec<_> = (0..SLOTS + 2)
        .map(|_| {
            let (folder, everybody) = (world.0.path().to_owned(), Arc::clone(&everybody));
            thread::spawn(move || {
                let mut siblings = Siblings::join(&folder.join("state.db"));
                let lock = open_lock(&folder);
                everybody.wait();
                for _ in 0..3 {
                    let mut turn = siblings.line_up();
                    begin(&mut turn, &lock);
                    turn.holding(Operation::Write);
                    lock.unlock().expect("to unlock");
                }
                everybody.wait();
                siblings.has_slot()
            })
        })
        .collect();
    let with_slot = threads.into_iter().map(|thread| thread.join().expect("all its turns")).filter(|has| *has);
    assert_eq!(with_slot.count(), SLOTS);
    assert!(world.join().has_slot(), "the slots are free again");
}

#[test]
fn a_forked_child_is_a_stranger_and_keeps_no_slot() {
    let world = World::new();
    let mut parent = world.start("parent");
    let child: i32 = world.wait_for("forked").parse().expect("a number");
    let end_child = Orphan(child);
    assert_eq!(list(&world.store()).len(), 1);
    let start = Instant::now();
    while world.read("child said").is_empty() && start.elapsed() < 5 * SECOND {
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(world.read("child said"), "stranger");
    assert_eq!(list(&world.store()).len(), 1, "the child's drop has not ended its parent's slot");
    parent.kill();
    assert_eq!(list(&world.store()), []);
    assert_eq!(world.join().seat().expect("a slot").number, 0, "the first slot is free although the child lives");
    drop(end_child);
}

/// A grandchild, whose parent was killed before it could end it.
struct Orphan(i32);

impl Drop for Orphan {
    fn drop(&mut self) {
        // SAFETY: it sleeps for a minute, and its number is its own as long.
        unsafe { libc::kill(self.0, libc::SIGKILL) };
    }
}

#[test]
fn a_slot_claimed_in_a_private_table_is_seen_outside() {
    let world = World::new();
    let store = world.store();
    let (send, receive) = mpsc::channel();
    let (leave, left) = mpsc::channel::<()>();
    crew::owners()
        .start(move || {
            let siblings = Siblings::join(&store);
            send.send(siblings.seat().map(|seat| seat.number)).expect("a listener");
            let _ = left.recv();
            drop(siblings);
            let _ = send.send(None);
        })
        .expect("a crew");
    assert_eq!(receive.recv().expect("an answer"), Some(0));
    assert_eq!(list(&world.store()).len(), 1);
    assert_eq!(world.join().seat().expect("a slot").number, 1, "two owners in one process are two siblings");
    leave.send(()).expect("a listener");
    receive.recv().expect("gone");
    assert_eq!(list(&world.store()), []);
}

#[test]
fn the_list_says_who_is_there_and_not_who_was() {
    let world = World::new();
    let store = world.store();
    assert_eq!(list(&store), []);
    assert!(!sidecar(&store).exists(), "looking creates nothing");

    let mut holder = world.start("holder");
    world.wait_for("holding");
    let siblings = world.join();
    assert_eq!(fs::metadata(sidecar(&store)).expect("the sidecar").mode() & 0o777, 0o600);
    let seen = list(&store);
    assert_eq!(seen.iter().map(|sibling| sibling.pid).collect::<Vec<_>>(), [holder.0.id(), std::process::id()]);
    let name = std::env::current_exe().expect("this binary");
    assert_eq!(seen[1].program, name.file_name().expect("a name").to_string_lossy());
    assert!(seen[1].open_for < 10 * SECOND && seen[1].holding_for.is_none() && seen[1].waiting_for.is_none());
    assert_eq!(super::holder(&store).map(|sibling| sibling.pid), Some(holder.0.id()));
    assert_eq!(siblings.list().len(), 2);

    let slots = &siblings.seat().expect("a slot").mapping;
    let (mine, unclaimed) = (slots.slot(1), slots.slot(2));
    for (from, to) in [(&mine.started, &unclaimed.started), (&mine.namespace, &unclaimed.namespace)] {
        to.store(from.load(Ordering::Relaxed), Ordering::Relaxed);
    }
    unclaimed.pid.store(std::process::id(), Ordering::Relaxed);
    slots.counters.used.store(3, Ordering::Relaxed);
    assert_eq!((siblings.list().len(), list(&store).len()), (2, 2), "a slot whose byte is free says nothing");

    holder.kill();
    assert_eq!(list(&store).len(), 1, "the dead are gone, though their slot is not cleaned");
    assert_eq!(super::holder(&store), None);

    let slot = siblings.seat().expect("a slot").slot();
    slot.holding_since.store(1, Ordering::Relaxed);
    assert_eq!(super::holder(&store).map(|sibling| sibling.pid), Some(std::process::id()));
    slot.started.fetch_add(1, Ordering::Relaxed);
    assert_eq!(list(&store), [], "a process of that number that started later is another one");
    assert_eq!(super::holder(&store), None, "and holds nothing");
    slot.holding_since.store(0, Ordering::Relaxed);
    slot.started.fetch_sub(1, Ordering::Relaxed);
    slot.pid.store(i32::MAX.cast_unsigned(), Ordering::Relaxed);
    assert_eq!(list(&store), [], "a locked byte is no proof of life without its process");
    slot.namespace.fetch_add(1, Ordering::Relaxed);
    let seen = list(&store);
    assert_eq!(seen.len(), 1, "but numbers of another container prove nothing");
    assert!(seen[0].program.ends_with(" in another container"), "and mean nobody here: {seen:?}");
    assert!(seen[0].open_since.is_some());
    slot.claimed_at.fetch_add(1, Ordering::Relaxed);
    assert_eq!(list(&store)[0].open_since, None, "a time that an earlier owner left is not taken for this one's");
}

#[test]
fn the_dead_leave_a_ticket_that_stops_nobody() {
    let world = World::new();
    let mut holder = world.start("holder");
    world.wait_for("holding");
    holder.kill();
    let mut siblings = world.join();
    assert_eq!(siblings.seat().expect("a slot").number, 0);
    assert_eq!(world.join().line_up().wait(Duration::ZERO), Standing::First, "its slot was taken over and emptied");

    fs::remove_file(world.path("holding")).expect("the word of the first");
    let mut holder = world.start("holder");
    world.wait_for("holding");
    holder.kill();
    assert_eq!(siblings.line_up().wait(Duration::ZERO), Standing::First, "its slot is still as it left it");
}

#[test]
fn a_sidecar_that_cannot_be_used_is_left_alone() {
    type Spoil = fn(&Path);
    let spoils: [(&str, Spoil); 6] = [
        ("a newer layout", |path| {
            let mut bytes = vec![0; Layout::SIZE * 2];
            bytes[..8].copy_from_slice(&(IDENTITY + 1).to_ne_bytes());
            fs::write(path, bytes).expect("a file");
        }),
        ("a short file of something else", |path| fs::write(path, "something else").expect("a file")),
        ("five bytes", |path| fs::write(path, "hello").expect("a file")),
        ("a folder", |path| fs::create_dir(path).expect("a folder")),
        ("a link", |path| {
            let target = path.with_extension("target");
            fs::write(&target, "").and_then(|()| symlink(&target, path)).expect("a link");
        }),
        ("a pipe", |path| {
            let made = Command::new("mkfifo").arg(path).status().expect("mkfifo");
            assert!(made.success());
        }),
    ];
    for (what, spoil) in spoils {
        let world = World::new();
        let path = sidecar(&world.store());
        spoil(&path);
        let before = path.is_file().then(|| fs::read(&path).expect("the file"));
        let mut siblings = Siblings::join(&world.store());
        assert!(!siblings.has_slot(), "{what}");
        let mut turn = siblings.line_up();
        assert_eq!(turn.wait(Duration::ZERO), Standing::Unordered, "{what}");
        turn.holding(Operation::Write);
        drop(turn);
        assert_eq!((siblings.list(), list(&world.store())), (vec![], vec![]), "{what}");
        assert_eq!(path.is_file().then(|| fs::read(&path).expect("the file")), before, "{what} is unchanged");
    }
    let nowhere = Siblings::join(Path::new("/nonexistent/state.db"));
    assert!(!nowhere.has_slot());
}

#[test]
fn a_cut_sidecar_grows_again() {
    let world = World::new();
    let path = sidecar(&world.store());
    for length in [0, 5, 100, 4096 + 10, Layout::SIZE as u64 - 1] {
        drop(world.join());
        let file = OpenOptions::new().write(true).open(&path).expect("the sidecar");
        file.set_len(length).expect("to cut it");
        assert_eq!(list(&world.store()), [], "looking at {length} bytes");
        if length == 5 {
            // Part of an identity is the identity of something else.
            assert!(!Siblings::join(&world.store()).has_slot());
            file.set_len(0).expect("to empty it");
        }
        let mut siblings = world.join();
        assert_eq!(siblings.line_up().wait(Duration::ZERO), Standing::First);
        assert_eq!(list(&world.store()).len(), 1);
        let status = file.metadata().expect("its status");
        assert_eq!(status.len(), Layout::SIZE as u64);
    }
    let mut last = [1];
    OpenOptions::new().read(true).open(&path).expect("it").read_at(&mut last, Layout::SIZE as u64 - 1).expect("a byte");
    assert_eq!(last, [0]);
}

#[test]
fn a_sidecar_deleted_under_its_owners_harms_nobody() {
    let world = World::new();
    let mut early = world.join();
    fs::remove_file(sidecar(&world.store())).expect("the sidecar");
    let mut late = world.join();
    // Two lines now, and SQLite's lock decides between them.
    let (mut one, mut other) = (early.line_up(), late.line_up());
    assert_eq!((one.wait(SLICE), other.wait(SLICE)), (Standing::First, Standing::First));
    one.holding(Operation::Write);
    drop((one, other));
    assert_eq!((early.list().len(), late.list().len(), list(&world.store()).len()), (1, 1, 1));
}

#[test]
fn a_long_name_is_cut_between_characters() {
    let world = World::new();
    let siblings = world.join();
    let slot = siblings.seat().expect("a slot").slot();
    slot.set_program(&"ä".repeat(40));
    assert_eq!(slot.program(), "ä".repeat(28));
    slot.set_program(&format!("a{}", "ä".repeat(40)));
    assert_eq!(slot.program(), format!("a{}", "ä".repeat(27)));
}

#[test]
fn the_numbers_of_operations_are_known_and_others_are_not() {
    for operation in Operation::ALL {
        assert_eq!(Operation::name_of(operation as u32), Some(operation.name()));
    }
    let next = u32::try_from(Operation::ALL.len()).expect("few") + 1;
    assert_eq!((Operation::name_of(0), Operation::name_of(next)), (None, None));
}
