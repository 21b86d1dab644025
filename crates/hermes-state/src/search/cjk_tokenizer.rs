//! The tokenizer `cjk_unicode61` as FTS5 calls it: SQLite's `unicode61`, whose words are cut by [`cut_cjk`].
//!
//! Files may hold an index that other programs keep with a loadable library of this name, so the tokens are that
//! library's byte for byte; otherwise what one program adds another could not remove.
#![expect(unsafe_code, reason = "FTS5 takes its tokenizers through C only")]

use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

use rusqlite::{Connection, ffi};

use super::cjk::{cut_cjk, is_cut};
use super::tokens::{Receive, Token};
use super::wrapped_tokenizer::{self, Wrapped};

/// The name under which tables ask for it.
const NAME: &std::ffi::CStr = c"cjk_unicode61";

/// Makes the tokenizer known to a connection; without it no table that names it can be read or written there.
///
/// # Errors
/// SQLite's, if it has no FTS5 or no memory.
pub(crate) fn register(connection: &Connection) -> rusqlite::Result<()> {
    wrapped_tokenizer::register(connection, NAME, c"unicode61", tokenize)
}

/// What a call of `tokenize` needs while `unicode61` gives out its words.
struct Cutting {
    context: *mut c_void,
    emit: Receive,
    text: *const c_char,
    length: c_int,
}

unsafe extern "C" fn tokenize(
    instance: *mut ffi::Fts5Tokenizer,
    context: *mut c_void,
    flags: c_int,
    text: *const c_char,
    length: c_int,
    emit: Option<Receive>,
) -> c_int {
    let Some(emit) = emit else { return ffi::SQLITE_MISUSE };
    let mut cutting = Cutting { context, emit, text, length };
    // SAFETY: FTS5 calls with a live instance of ours; the text is FTS5's and outlives the call, as does `cutting`;
    // `receive` has the type of the callback and takes this context.
    unsafe {
        let instance = &*instance.cast::<Wrapped>();
        (instance.tokenize)(instance.inner, (&raw mut cutting).cast(), flags, text, length, Some(receive))
    }
}

/// Takes a word of `unicode61` and passes its parts on.
unsafe extern "C" fn receive(
    context: *mut c_void,
    flags: c_int,
    word: *const c_char,
    length: c_int,
    start: c_int,
    end: c_int,
) -> c_int {
    // SAFETY: the context is that of the call to `tokenize` that this is part of, and nothing else refers to it now.
    let cutting = unsafe { &*context.cast::<Cutting>() };
    // SAFETY: FTS5's own callback with FTS5's own context; word or part of it are alive during the call.
    let emit = |word: *const c_char, length: c_int, start: c_int, end: c_int| unsafe {
        (cutting.emit)(cutting.context, flags, word, length, start, end)
    };
    let size = |number: c_int| usize::try_from(number).unwrap_or_default();
    let bytes = match size(length) {
        0 => &[],
        // SAFETY: `unicode61` passes a buffer of this length, which it leaves alone during the call.
        length => unsafe { std::slice::from_raw_parts(word.cast::<u8>(), length) },
    };
    if bytes.is_ascii() {
        return emit(word, length, start, end);
    }
    let original = match size(end).checked_sub(size(start)) {
        Some(taken @ 1..) if end <= cutting.length => {
            // SAFETY: where the word stands lies within the text of the call, which is alive and left alone.
            unsafe { std::slice::from_raw_parts(cutting.text.cast::<u8>().add(size(start)), taken) }
        }
        _ => &[],
    };
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut code = ffi::SQLITE_OK;
        each_part(bytes, original, &mut |part, from, to| {
            if code == ffi::SQLITE_OK {
                let place = |at: usize| c_int::try_from(at).unwrap_or(c_int::MAX).saturating_add(start).min(end);
                let length = c_int::try_from(part.len()).unwrap_or(c_int::MAX);
                code = emit(part.as_ptr().cast(), length, place(from), place(to));
            }
        });
        code
    }));
    // A panic must not cross C; as an error it ends the statement.
    outcome.unwrap_or(ffi::SQLITE_ERROR)
}

/// The parts of a folded word and where they stand in the text it was made of. Where either is not valid UTF-8 nothing
/// can be counted, and a part stands where it stands in the folded word.
fn each_part(folded: &[u8], original: &[u8], sink: &mut dyn FnMut(&[u8], usize, usize)) {
    if let (Ok(folded), Ok(text)) = (std::str::from_utf8(folded), std::str::from_utf8(original)) {
        let word = Token { text: folded, start: 0, end: text.len() };
        return cut_cjk(word, text, &mut |part| sink(part.text.as_bytes(), part.start, part.end));
    }
    let mut part = |from: usize, to: usize| sink(&folded[from..to], from, to);
    // The last character of these scripts, and whether it is in a pair; the beginning of a stretch of others.
    let (mut last, mut paired, mut other, mut at) = (None, false, None, 0);
    while at < folded.len() {
        let (length, cut) = unit(&folded[at..]);
        if cut {
            if let Some(from) = other.take() {
                part(from, at);
            }
            let neighbour = last.replace(at);
            paired = neighbour.is_some();
            if let Some(from) = neighbour {
                part(from, at + length);
            }
        } else {
            if let Some(from) = last.take().filter(|_| !paired) {
                part(from, at);
            }
            other.get_or_insert(at);
        }
        at += length;
    }
    if let Some(from) = other.or(last.filter(|_| !paired)) {
        part(from, at);
    }
}

/// The length of what the bytes begin with, and whether it is a character that is cut from others: the first byte alone
/// says how many belong together, if there are as many.
fn unit(bytes: &[u8]) -> (usize, bool) {
    let (length, bits) = match bytes[0] {
        0xf0.. => (4, 0x07),
        0xe0.. => (3, 0x0f),
        0xc0.. => (2, 0x1f),
        _ => return (1, false),
    };
    let Some(rest) = bytes.get(1..length) else { return (1, false) };
    let first = u32::from(bytes[0] & bits);
    let number = rest.iter().fold(first, |number, byte| number << 6 | u32::from(byte & 0x3f));
    (length, char::from_u32(number).is_some_and(is_cut))
}

#[cfg(test)]
mod tests;
