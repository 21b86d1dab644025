//! A TCP proxy that loses connections, at moments chosen by a seed.

mod connection;

use std::io::ErrorKind;
use std::net::{Ipv4Addr, TcpListener};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::system_calls::{Interest, wait_ready};
use crate::url;
use connection::Connection;

/// How late a connection may notice that the proxy was told something.
const TICK: Duration = Duration::from_millis(5);

/// A proxy on 127.0.0.1 in front of a server. It forwards faithfully until it is told otherwise.
///
/// To cut a connection is to reset both its sides. Clients that reconnect get a new one through the same port.
#[derive(Debug)]
pub struct CuttingProxy {
    port: u16,
    told: Arc<Told>,
    acceptor: Option<JoinHandle<()>>,
}

/// What the proxy was told, and counts, for all its connections.
#[derive(Debug)]
struct Told {
    target: String,
    seed: u64,
    orders: Mutex<Orders>,
    changed: Condvar,
    connections: AtomicU64,
    cuts: AtomicU64,
}

#[derive(Debug, Default)]
struct Orders {
    /// Which time it is that random cuts were switched on.
    cutting: Option<u64>,
    times_on: u64,
    /// How often all connections were to be cut.
    cut_all: u64,
    stalled: bool,
    ended: bool,
}

impl CuttingProxy {
    /// Starts a proxy in front of `target`, as `127.0.0.1:5432`. With the same seed, the connections of the same number
    /// get the same fates.
    ///
    /// # Panics
    ///
    /// When no port can be had.
    #[must_use]
    pub fn start(target: &str, seed: u64) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port for the proxy");
        listener.set_nonblocking(true).expect("a listener that does not block");
        let port = listener.local_addr().expect("the port of the proxy").port();
        let told = Arc::new(Told {
            target: target.to_owned(),
            seed,
            orders: Mutex::default(),
            changed: Condvar::new(),
            connections: AtomicU64::new(0),
            cuts: AtomicU64::new(0),
        });
        let accepting = Arc::clone(&told);
        Self { port, told, acceptor: Some(thread::spawn(move || accept(&listener, &accepting))) }
    }

    /// The port on 127.0.0.1 that stands for the server's.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// A URL of the server, changed so that it leads through this proxy.
    #[must_use]
    pub fn url(&self, servers: &str) -> String {
        url::with_host_port(servers, "127.0.0.1", self.port)
    }

    /// Whether each connection, those that are there and those to come, is cut either after a random number of bytes in
    /// one direction (1 to 262,144, small numbers as likely as great ones) or after 1 to 400 ms.
    ///
    /// The count begins when this is switched on. A byte is no message: a cut may fall into the middle of one, and what
    /// reached the server may have been done although its answer did not come back.
    pub fn cut_randomly(&self, on: bool) {
        self.told.order(|orders| {
            if on && orders.cutting.is_none() {
                orders.times_on += 1;
            }
            orders.cutting = on.then_some(orders.times_on);
        });
    }

    /// Cuts all connections that are there now, once.
    pub fn cut_all(&self) {
        self.told.order(|orders| orders.cut_all += 1);
    }

    /// Whether it swallows everything: it accepts connections, but forwards nothing and closes nothing, in either
    /// direction. Afterwards what has been sent meanwhile arrives.
    pub fn stall(&self, on: bool) {
        self.told.order(|orders| orders.stalled = on);
    }

    /// How many connections it has accepted.
    #[must_use]
    pub fn connections(&self) -> u64 {
        self.told.connections.load(Ordering::SeqCst)
    }

    /// How many it has cut; not those that their own sides ended.
    #[must_use]
    pub fn cuts(&self) -> u64 {
        self.told.cuts.load(Ordering::SeqCst)
    }
}

impl Drop for CuttingProxy {
    /// Resets what is still connected, and returns when the port is closed and all threads have ended.
    fn drop(&mut self) {
        self.told.order(|orders| orders.ended = true);
        if let Some(acceptor) = self.acceptor.take()
            && let Err(panic) = acceptor.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(panic);
        }
    }
}

impl Told {
    fn order(&self, change: impl FnOnce(&mut Orders)) {
        change(&mut self.lock());
        self.changed.notify_all();
    }

    /// The orders, once they are not to stall. They stay as they are as long as this is held: nothing is forwarded, and
    /// nothing cut, against an order that was given before.
    fn orders(&self) -> MutexGuard<'_, Orders> {
        let stalled = |orders: &mut Orders| orders.stalled && !orders.ended;
        self.changed.wait_while(self.lock(), stalled).unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> MutexGuard<'_, Orders> {
        self.orders.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn accept(listener: &TcpListener, told: &Arc<Told>) {
    let mut threads: Vec<JoinHandle<()>> = Vec::new();
    loop {
        // Of before it is accepted: a connection that is cut for an order just given may have been there already.
        let (cut_all, ended) = {
            let orders = told.lock();
            (orders.cut_all, orders.ended)
        };
        if ended {
            break;
        }
        match listener.accept() {
            Ok((client, _)) => {
                let number = told.connections.fetch_add(1, Ordering::SeqCst);
                let told = Arc::clone(told);
                threads.retain(|thread| !thread.is_finished());
                threads.push(thread::spawn(move || Connection::run(client, number, cut_all, &told)));
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                wait_ready([(listener.as_fd(), Interest { read: true, write: false })], TICK);
            }
            // A client that gave up before it was accepted, or a lack of descriptors that may pass.
            Err(_) => thread::sleep(TICK),
        }
    }
    for thread in threads {
        thread.join().expect("a connection's thread does not panic");
    }
}
