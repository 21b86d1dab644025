//! The table of figures and budgets.
#![expect(clippy::print_stdout, reason = "printing is what a benchmark is for")]

use std::process::ExitCode;

/// Collects figures and says at the end whether all budgets were met.
pub(crate) struct Report {
    missed: usize,
}

/// On which side of the budget a figure has to be.
pub(crate) enum Budget {
    AtMost(f64),
    AtLeast(f64),
}

impl Report {
    pub(crate) fn new() -> Self {
        println!("{:<64} {:>12} {:>14}  verdict", "what", "figure", "budget");
        Self { missed: 0 }
    }

    /// A figure with its budget.
    pub(crate) fn figure(&mut self, what: &str, figure: f64, unit: &str, budget: &Budget) {
        let (met, limit) = match budget {
            Budget::AtMost(limit) => (figure <= *limit, format!("≤ {limit} {unit}")),
            Budget::AtLeast(limit) => (figure >= *limit, format!("≥ {limit} {unit}")),
        };
        self.missed += usize::from(!met);
        let verdict = if met { "met" } else { "MISSED" };
        println!("{what:<64} {:>12} {limit:>14}  {verdict}", format!("{figure:.2} {unit}"));
    }

    /// A figure that explains others.
    pub(crate) fn note(&self, what: &str, figure: &str) {
        println!("  {what}: {figure}");
    }

    pub(crate) fn left_out(&self, what: &str, why: &str) {
        println!("{what:<64} left out: {why}");
    }

    pub(crate) fn conclude(self) -> ExitCode {
        if self.missed == 0 {
            println!("all budgets met");
            return ExitCode::SUCCESS;
        }
        println!("{} budgets missed", self.missed);
        ExitCode::FAILURE
    }
}

/// The middle of some figures.
pub(crate) fn median(figures: &[f64]) -> f64 {
    let mut sorted = figures.to_vec();
    sorted.sort_by(f64::total_cmp);
    match sorted.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => sorted[length / 2],
        length => f64::midpoint(sorted[length / 2 - 1], sorted[length / 2]),
    }
}
