"""The class ``SessionDB``: the signatures and manners that callers know, over the native store."""

from __future__ import annotations

from hermes_state._backup import Backup
from hermes_state._compression import Compression
from hermes_state._conversations import Conversations
from hermes_state._deletion import Deletion
from hermes_state._export import Export
from hermes_state._gateway import Gateway
from hermes_state._handoff import Handoff
from hermes_state._index import Index
from hermes_state._leases import Leases
from hermes_state._listing import Listing
from hermes_state._maintenance import Maintenance
from hermes_state._messages import Messages
from hermes_state._retention import Retention
from hermes_state._search import Search
from hermes_state._sessions import Sessions
from hermes_state._spool import Spool
from hermes_state._titles import Titles
from hermes_state._topics import Topics
from hermes_state._usage import Usage


class SessionDB(
    Conversations,
    Sessions,
    Titles,
    Listing,
    Deletion,
    Messages,
    Export,
    Search,
    Index,
    Usage,
    Compression,
    Leases,
    Gateway,
    Topics,
    Handoff,
    Retention,
    Maintenance,
    Backup,
    Spool,
):
    """A store of sessions and their messages, shared by all the agents of a machine, or by those of many on a server.

    One instance may be used from any number of threads, several instances and processes on one store. ``db_path`` is
    the path of a file, or the URL of a server (``postgresql://user@host/database?schema=name``); without it the
    environment's HERMES_STATE_URL counts, then the default path. A URL without a password takes it from PGPASSWORD.
    With ``spool=True`` an append that the store cannot take (busy beyond the patience, damaged, full, not to be opened,
    its server away) returns a ``Spooled`` with a ``ticket`` instead of raising; it is durable beside the file, or in
    ``spool_dir`` (for a server by default ``spool`` in the home folder), and stored before what is written next.
    The attribute ``db_path`` is a ``Path``, or the URL as text without its password. Raw SQL (``_conn``, and functions
    passed to ``_execute_write``) needs a file.
    """
