//! A write in the gate's queue, with its answer, whatever their types.

use std::sync::mpsc::SyncSender;

use crate::backend::Operation;
use crate::error::{Error, Result};
use crate::op::{Promise, Write};
use crate::transaction::Transaction;

/// A write with its answer.
pub(super) trait Job: Send {
    fn operation(&self) -> Operation;

    /// See [`Write::subject`].
    fn subject(&self) -> Option<&str>;

    /// Applies the write; [`fulfil`](Job::fulfil) waits for its answer.
    fn apply(&mut self, transaction: &mut dyn Transaction) -> Result<()>;

    /// Waits for the answer of the write as it was applied last.
    fn fulfil(&mut self, transaction: &mut dyn Transaction) -> Result<()>;

    /// Whether the write is one whose answer is the id of a row.
    fn is_one_row(&self) -> bool;

    /// Keeps in mind that the transaction may turn out to have been committed, and that its note then has the answer.
    fn keep_noted(&mut self);

    /// Keeps the answer for the case that the transaction turns out to have been committed although its end was not
    /// seen.
    fn keep(&mut self);

    /// How often an answer was kept: the number of the next attempt.
    fn kept(&self) -> usize;

    /// Lets the kept answers go: none of these attempts has stored anything, or ever will.
    fn forget(&mut self);

    /// Whether one of the attempts may have stored it.
    fn is_perhaps_stored(&self) -> bool;

    /// Gives the caller the answer of the last application.
    fn conclude(self: Box<Self>, outcome: Result<()>);

    /// Gives the caller the answer that was kept of an attempt, or that its note has.
    fn conclude_with_kept(self: Box<Self>, number: usize, row: Option<i64>);
}

/// A write of some type.
pub(super) struct Typed<W: Write> {
    write: W,
    promise: Option<Promise<W::Answer>>,
    answer: Option<W::Answer>,
    kept: Vec<Kept<W::Answer>>,
    reply: SyncSender<Result<W::Answer>>,
}

/// What is known of an attempt whose end was not seen.
enum Kept<A> {
    /// It has not stored anything.
    Nothing,
    /// Its answer, if it was stored.
    Answer(A),
    /// If it was stored, its answer was noted.
    Noted,
}

impl<W: Write> Typed<W> {
    pub(super) fn new(write: W, reply: SyncSender<Result<W::Answer>>) -> Self {
        Self { write, promise: None, answer: None, kept: Vec::new(), reply }
    }

    fn reply(&self, answer: Result<W::Answer>) {
        // The caller waits for this; if its thread is gone, nobody is left to tell.
        let _ = self.reply.send(answer);
    }
}

impl<W: Write> Job for Typed<W> {
    fn operation(&self) -> Operation {
        W::OPERATION
    }

    fn subject(&self) -> Option<&str> {
        self.write.subject()
    }

    fn apply(&mut self, transaction: &mut dyn Transaction) -> Result<()> {
        self.answer = None;
        self.promise = Some(self.write.apply(transaction)?);
        Ok(())
    }

    fn fulfil(&mut self, transaction: &mut dyn Transaction) -> Result<()> {
        let promise = self.promise.take().ok_or_else(unanswered)?;
        self.answer = Some(promise.fulfil(transaction)?);
        Ok(())
    }

    fn is_one_row(&self) -> bool {
        self.write.answer_of_row(0).is_some()
    }

    fn keep_noted(&mut self) {
        self.kept.push(Kept::Noted);
    }

    fn keep(&mut self) {
        self.kept.push(self.answer.take().map_or(Kept::Nothing, Kept::Answer));
    }

    fn kept(&self) -> usize {
        self.kept.len()
    }

    fn forget(&mut self) {
        self.kept.fill_with(|| Kept::Nothing);
    }

    fn is_perhaps_stored(&self) -> bool {
        self.kept.iter().any(|kept| !matches!(kept, Kept::Nothing))
    }

    fn conclude(mut self: Box<Self>, outcome: Result<()>) {
        let answer = outcome.and_then(|()| self.answer.take().ok_or_else(unanswered));
        self.reply(answer);
    }

    fn conclude_with_kept(mut self: Box<Self>, number: usize, row: Option<i64>) {
        let kept = self.kept.get_mut(number).map(|kept| std::mem::replace(kept, Kept::Nothing));
        let answer = match kept {
            Some(Kept::Answer(answer)) => Some(answer),
            Some(Kept::Noted) => row.and_then(|id| self.write.answer_of_row(id)),
            Some(Kept::Nothing) | None => None,
        };
        self.reply(answer.ok_or_else(unanswered));
    }
}

/// The answer of a thread that ended before it gave one.
pub(super) fn unanswered() -> Error {
    Error::Engine {
        message: "the writing thread ended before it answered; whether the write was stored is unknown".into(),
        code: 0,
    }
}
