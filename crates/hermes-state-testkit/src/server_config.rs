//! How a server is to differ from the usual one.

use std::fmt::Write;
use std::path::Path;

/// The addresses that network namespaces get ([`crate::Hosts`]); set apart for test networks by RFC 2544.
pub(crate) const HOSTS_NETWORK: &str = "198.18.0.0/15";

/// How a server is to differ from one that trusts everybody on 127.0.0.1 and speaks no TLS.
#[derive(Debug, Clone, Default)]
pub struct ServerConfig {
    settings: Vec<String>,
    access_rules: Vec<String>,
    pub(crate) password: Option<String>,
    pub(crate) tls: bool,
    all_addresses: bool,
}

impl ServerConfig {
    /// The usual server.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a line to `postgresql.conf`, as `max_connections = 20`. The last one of a name counts.
    #[must_use]
    pub fn setting(mut self, line: &str) -> Self {
        self.settings.push(line.to_owned());
        self
    }

    /// Adds a line to `pg_hba.conf` before the usual ones, as `hostnossl all all all reject`. The first that fits counts.
    #[must_use]
    pub fn access_rule(mut self, line: &str) -> Self {
        self.access_rules.push(line.to_owned());
        self
    }

    /// TCP clients must know a password (SCRAM-SHA-256); for the role `postgres` it is this one, and is part of the
    /// server's URLs.
    #[must_use]
    pub fn password(mut self, password: &str) -> Self {
        self.password = Some(password.to_owned());
        self
    }

    /// Speaks TLS to clients that want it, as `localhost` and `127.0.0.1`, with a certificate of an authority of its own
    /// ([`crate::Server::certificate_authority`]).
    #[must_use]
    pub fn tls(mut self) -> Self {
        self.tls = true;
        self
    }

    /// Listens on all addresses of the machine, for the sake of [`crate::Hosts`]; others than these are not let in.
    #[must_use]
    pub fn all_addresses(mut self) -> Self {
        self.all_addresses = true;
        self
    }

    /// What `postgresql.conf` is to have in addition.
    pub(crate) fn postgresql_conf(&self, folder: &Path, port: u16) -> String {
        let folder = folder.to_str().expect("the path of the temporary folder is text").replace('\'', "''");
        let addresses = if self.all_addresses { "*" } else { "127.0.0.1" };
        let mut text = format!(
            "\nlisten_addresses = '{addresses}'\n\
             port = {port}\n\
             unix_socket_directories = '{folder}'\n\
             fsync = on\n\
             synchronous_commit = on\n\
             shared_buffers = 32MB\n\
             max_connections = 200\n\
             max_wal_size = 256MB\n\
             logging_collector = off\n\
             log_line_prefix = '%m [%p] %u@%d '\n"
        );
        // In the folder, so that a server that was killed leaves nothing in /dev/shm.
        text.push_str("dynamic_shared_memory_type = mmap\n");
        if self.tls {
            writeln!(text, "ssl = on\nssl_cert_file = '{folder}/server.crt'\nssl_key_file = '{folder}/server.key'")
                .expect("into a text");
        }
        for line in &self.settings {
            writeln!(text, "{line}").expect("into a text");
        }
        text
    }

    /// The whole of `pg_hba.conf`.
    pub(crate) fn pg_hba_conf(&self) -> String {
        let method = if self.password.is_some() { "scram-sha-256" } else { "trust" };
        let mut text = String::new();
        for line in &self.access_rules {
            writeln!(text, "{line}").expect("into a text");
        }
        // The socket lies in a folder that only the server's account and root may enter.
        writeln!(text, "local all all trust\nhost all all 127.0.0.1/32 {method}").expect("into a text");
        if self.all_addresses {
            writeln!(text, "host all all {HOSTS_NETWORK} {method}").expect("into a text");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_settings_come_last_and_own_rules_first() {
        let config = ServerConfig::new().setting("max_connections = 7").access_rule("host all eve all reject");
        let conf = config.postgresql_conf(Path::new("/it's"), 1234);
        assert!(conf.ends_with("max_connections = 7\n") && conf.contains("'/it''s'") && conf.contains("port = 1234\n"));
        assert!(config.pg_hba_conf().starts_with("host all eve all reject\nlocal"));
    }

    #[test]
    fn nobody_but_this_machine_and_its_namespaces_is_let_in() {
        assert!(!ServerConfig::new().pg_hba_conf().contains(HOSTS_NETWORK));
        let all = ServerConfig::new().all_addresses().pg_hba_conf();
        assert!(all.contains(HOSTS_NETWORK) && !all.contains("0.0.0.0"));
        assert!(
            !ServerConfig::new()
                .password("x")
                .all_addresses()
                .pg_hba_conf()
                .contains("host all all 127.0.0.1/32 trust")
        );
    }
}
