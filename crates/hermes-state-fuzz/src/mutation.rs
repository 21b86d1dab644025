//! Makes new input of old: parts are repeated, removed, moved, and replaced by what is known to hurt.

use fastrand::Rng;

/// Characters and stretches that break what is careless, whatever the input is.
const HURTFUL: [&str; 24] = [
    "\0",
    "\u{1}",
    "\u{1c}",
    "\u{7f}",
    "\u{85}",
    "\u{a0}",
    "\u{200b}",
    "\u{2028}",
    "\u{feff}",
    "\u{fffd}",
    "\u{fffff}",
    "\u{10fffe}",
    "\u{10ffff}",
    "é",
    "e\u{301}",
    "İ",
    "ß",
    "字",
    "👨‍👩‍👧",
    "\\",
    "\"",
    "'",
    "%",
    "\n",
];

/// What inputs are made of.
pub(crate) struct Mutator {
    rng: Rng,
    pool: Vec<String>,
    words: &'static [&'static str],
    seeds: usize,
}

/// How many inputs are kept to be mutated further.
const KEPT: usize = 256;
/// How long an input gets, in characters.
const LONGEST: usize = 4000;

impl Mutator {
    pub(crate) fn new(seed: u64, seeds: &[&str], words: &'static [&'static str]) -> Self {
        let pool: Vec<String> = seeds.iter().map(|seed| (*seed).to_owned()).collect();
        Self { rng: Rng::with_seed(seed), seeds: pool.len(), pool, words }
    }

    /// An input. The first ones are the seeds as they are.
    pub(crate) fn next(&mut self, round: usize) -> String {
        if let Some(seed) = self.pool.get(round).filter(|_| round < self.seeds) {
            return seed.clone();
        }
        let mut input: Vec<char> = self.any().chars().collect();
        for _ in 0..self.rng.usize(1..8) {
            self.change(&mut input);
        }
        input.truncate(LONGEST);
        input.into_iter().collect()
    }

    /// Keeps an input that went far, in the place of another one that is no seed.
    pub(crate) fn keep(&mut self, input: &str) {
        if self.pool.len() < self.seeds + KEPT {
            self.pool.push(input.to_owned());
        } else {
            let place = self.rng.usize(self.seeds..self.pool.len());
            self.pool[place] = input.to_owned();
        }
    }

    fn any(&mut self) -> String {
        if self.pool.is_empty() { String::new() } else { self.pool[self.rng.usize(..self.pool.len())].clone() }
    }

    fn change(&mut self, input: &mut Vec<char>) {
        let (from, to) = self.part(input.len());
        match self.rng.u8(..8) {
            0 => drop(input.drain(from..to)),
            1 => insert(input, from, input[from..to].to_vec()),
            2 => insert(input, from, self.word()),
            3 => drop(input.splice(from..to, self.word())),
            4 => {
                let moved: Vec<char> = input.drain(from..to).collect();
                let place = self.rng.usize(..=input.len());
                insert(input, place, moved);
            }
            5 => {
                let other: Vec<char> = self.any().chars().collect();
                let (begin, end) = self.part(other.len());
                drop(input.splice(from..to, other[begin..end].to_vec()));
            }
            6 => {
                let times = self.rng.usize(2..40);
                let repeated = self.word().repeat(times);
                insert(input, from, repeated);
            }
            _ => {
                let character = char::from_u32(self.rng.u32(..0x11_0000)).unwrap_or('\u{fffd}');
                insert(input, from, vec![character]);
            }
        }
    }

    /// A stretch of something this long, mostly a short one.
    fn part(&mut self, length: usize) -> (usize, usize) {
        let from = self.rng.usize(..=length);
        let most = if self.rng.u8(..4) == 0 { length } else { 8 };
        (from, (from + self.rng.usize(..=most)).min(length))
    }

    fn word(&mut self) -> Vec<char> {
        let number = self.rng.usize(..self.words.len() + HURTFUL.len());
        self.words.get(number).unwrap_or_else(|| &HURTFUL[number - self.words.len()]).chars().collect()
    }
}

fn insert(input: &mut Vec<char>, place: usize, what: Vec<char>) {
    drop(input.splice(place..place, what));
}
