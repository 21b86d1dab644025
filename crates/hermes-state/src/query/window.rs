//! Messages around another one of their session.

use crate::columns::MessageColumns;
use crate::error::Result;
use crate::message::Message;
use crate::statement::Statement;
use crate::transaction::Transaction;
use crate::value::Value;

/// A message with its neighbours.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct MessageWindow {
    /// The messages in their order, the one that was asked for among them; empty if there is no such message.
    pub messages: Vec<Message>,
    /// How many of them stand before it: fewer than asked for where the session begins.
    pub before: usize,
    /// How many of them stand behind it: fewer than asked for where the session ends.
    pub after: usize,
}

/// What to show around a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AnchoredViewOptions {
    /// So many messages on either side.
    pub window: i64,
    /// So many from the beginning of the session, and from its end.
    pub bookend: i64,
    /// Only messages of these roles, besides the one that is asked for; `None`: all.
    pub keep_roles: Option<Vec<String>>,
}

impl Default for AnchoredViewOptions {
    fn default() -> Self {
        Self { window: 5, bookend: 3, keep_roles: Some(vec!["user".to_owned(), "assistant".to_owned()]) }
    }
}

/// A message with its neighbours, and how its session begins and ends.
#[derive(Debug, Clone, PartialEq, Default)]
#[non_exhaustive]
pub struct AnchoredView {
    /// The window, of which only messages of the roles asked for are kept; its numbers are of before that.
    pub window: MessageWindow,
    /// The first messages with content of the session, as far as they come before the window.
    pub start: Vec<Message>,
    /// The last messages with content of the session, as far as they come behind the window.
    pub end: Vec<Message>,
}

/// The messages around one of them, rewound ones left out unless it is one itself.
pub(crate) fn around(
    transaction: &mut dyn Transaction,
    session_id: &Value,
    message_id: &Value,
    window: i64,
) -> Result<MessageWindow> {
    let columns = MessageColumns::read(transaction)?;
    of(transaction, &columns, session_id, message_id, window)
}

fn of(
    transaction: &mut dyn Transaction,
    columns: &MessageColumns,
    session_id: &Value,
    message_id: &Value,
    window: i64,
) -> Result<MessageWindow> {
    let anchor = transaction.first(
        "SELECT m.* FROM messages m WHERE m.session_id = ?1 AND m.id = ?2",
        &[session_id.clone(), message_id.clone()],
    )?;
    let Some(anchor) = Message::all(anchor.into_iter().collect()).pop() else { return Ok(MessageWindow::default()) };
    let visible = columns.is_visible();
    let mut messages = neighbours(transaction, visible, session_id, anchor.id(), &Side::BEFORE, window)?;
    messages.reverse();
    let before = messages.len();
    let behind = neighbours(transaction, visible, session_id, anchor.id(), &Side::BEHIND, window)?;
    messages.push(anchor);
    let after = behind.len();
    messages.extend(behind);
    Ok(MessageWindow { messages, before, after })
}

/// A side of a message.
struct Side {
    beyond: &'static str,
    order: &'static str,
    sign: i64,
}

impl Side {
    const BEFORE: Self = Self { beyond: "<", order: "DESC", sign: -1 };
    const BEHIND: Self = Self { beyond: ">", order: "ASC", sign: 1 };
}

/// How far along the messages of all sessions those of one are looked for first, for each that is wanted.
const NEAR: i64 = 20;
/// Where more are wanted, the session's index is asked at once.
const FEW: i64 = 1_000;

/// The newest messages `m` of a session that meet a condition, newest first.
pub(super) fn newest(
    transaction: &mut dyn Transaction,
    condition: &str,
    session_id: &Value,
    most: i64,
) -> Result<Vec<Message>> {
    let last = transaction.scalar("SELECT MAX(id) FROM messages", &[])?.as_i64().unwrap_or_default();
    neighbours(transaction, condition, session_id, last.saturating_add(1), &Side::BEFORE, most)
}

/// The nearest messages `m` on one side that meet a condition, nearest first.
///
/// No index has a session's messages in the order of their ids. Mostly they are among the next of all sessions; where
/// they are not, asking the session's index costs time by the length of the session. It gives the ids, so that what is
/// not wanted of a long session is not read to be sorted.
fn neighbours(
    transaction: &mut dyn Transaction,
    condition: &str,
    session_id: &Value,
    id: i64,
    side: &Side,
    most: i64,
) -> Result<Vec<Message>> {
    let most = most.max(0);
    if most == 0 {
        return Ok(Vec::new());
    }
    let Side { beyond, order, sign } = side;
    let rest = format!("{condition} ORDER BY m.id {order} LIMIT CAST(?3 AS BIGINT)");
    let far = id.saturating_add(sign * most.saturating_mul(NEAR));
    let opposite = if *sign < 0 { ">=" } else { "<=" };
    // The concatenation keeps this statement from the session's index.
    let nearby = format!(
        "SELECT m.* FROM messages m WHERE m.session_id || '' = ?1 AND m.id {beyond} ?2 AND m.id {opposite} ?4 AND {rest}"
    );
    if most <= FEW {
        let found = transaction.records(&nearby, &[session_id.clone(), id.into(), most.into(), far.into()])?;
        if i64::try_from(found.len()).is_ok_and(|found| found == most) {
            return Ok(Message::all(found));
        }
    }
    let anywhere = format!(
        "SELECT n.* FROM messages n WHERE n.id IN \
         (SELECT m.id FROM messages m WHERE m.session_id = ?1 AND m.id {beyond} ?2 AND {rest}) ORDER BY n.id {order}"
    );
    transaction.records(&anywhere, &[session_id.clone(), id.into(), most.into()]).map(Message::all)
}

/// A message with its neighbours, and the ends of the session.
pub(crate) fn anchored(
    transaction: &mut dyn Transaction,
    session_id: &Value,
    message_id: &Value,
    options: &AnchoredViewOptions,
) -> Result<AnchoredView> {
    let columns = MessageColumns::read(transaction)?;
    let mut window = of(transaction, &columns, session_id, message_id, options.window)?;
    let (Some(first), Some(last)) = (window.messages.first().map(Message::id), window.messages.last().map(Message::id))
    else {
        return Ok(AnchoredView::default());
    };
    let start = bookend(transaction, &columns, session_id, ("<", first), "ASC", options)?;
    let mut end = bookend(transaction, &columns, session_id, (">", last), "DESC", options)?;
    end.reverse();
    let anchor = window.messages[window.before].id();
    if let Some(roles) = &options.keep_roles {
        window.messages.retain(|message| message.id() == anchor || roles.iter().any(|role| role == message.role()));
    }
    Ok(AnchoredView { window, start, end })
}

/// The messages with content at one end of the session, on the far side of an id.
fn bookend(
    transaction: &mut dyn Transaction,
    columns: &MessageColumns,
    session_id: &Value,
    (beyond, id): (&str, i64),
    order: &str,
    options: &AnchoredViewOptions,
) -> Result<Vec<Message>> {
    if options.bookend <= 0 || options.keep_roles.as_ref().is_some_and(Vec::is_empty) {
        return Ok(Vec::new());
    }
    let mut statement = Statement::default();
    let (session, id) = (statement.bind(session_id.clone()), statement.bind(id));
    statement.push(&format!(
        "SELECT m.* FROM messages m WHERE m.session_id = {session} AND m.id {beyond} {id} AND m.content IS NOT NULL \
         AND m.content <> '' AND {}",
        columns.is_visible()
    ));
    if let Some(roles) = &options.keep_roles {
        let listed = statement.bind_all(roles);
        statement.push(&format!(" AND m.role IN ({listed})"));
    }
    let most = statement.bind_count(options.bookend);
    statement.push(&format!(" ORDER BY m.id {order} LIMIT {most}"));
    transaction.records(&statement.sql, &statement.parameters).map(Message::all)
}
