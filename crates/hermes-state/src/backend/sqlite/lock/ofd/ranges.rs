//! A set of half-open ranges of numbers: bytes of a file that are locked, addresses that are mapped.

/// The ranges do not overlap; their order means nothing.
pub(super) struct Ranges(Vec<(u64, u64)>);

impl Ranges {
    pub(super) const fn new() -> Self {
        Self(Vec::new())
    }

    pub(super) fn insert(&mut self, start: u64, end: u64) {
        self.remove(start, end);
        self.0.push((start, end));
    }

    pub(super) fn remove(&mut self, start: u64, end: u64) {
        let mut tails = Vec::new();
        self.0.retain_mut(|range| {
            if range.1 <= start || end <= range.0 {
                return true;
            }
            if end < range.1 {
                tails.push((end, range.1));
            }
            range.1 = start;
            range.0 < range.1
        });
        self.0.append(&mut tails);
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, u64)> {
        self.0.iter().copied()
    }
}

#[cfg(test)]
mod tests {
    use super::Ranges;

    #[test]
    fn holds_exactly_the_numbers_that_a_plain_list_would() {
        let mut ranges = Ranges::new();
        let mut plain = [false; 24];
        let mut seed = 7u64;
        for _ in 0..4000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let (start, length, insert) = (seed >> 33 & 15, seed >> 40 & 7, seed >> 50 & 1 == 1);
            let end = start + length + 1;
            if insert {
                ranges.insert(start, end)
            } else {
                ranges.remove(start, end)
            }
            plain[start as usize..end as usize].fill(insert);
            for (number, held) in (0..).zip(plain) {
                let covers = ranges.iter().filter(|(from, to)| (*from..*to).contains(&number)).count();
                assert_eq!(covers, usize::from(held), "number {number}");
            }
        }
    }
}
