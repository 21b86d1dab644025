//! What each `sslmode` takes, against a server with certificates of an authority of the test's own.

use std::path::Path;
use std::process::Command;

use super::super::connect::{ConnectError, Role, connect};
use super::super::server::{Server, block_on};
use super::*;

/// An authority, a certificate that it gave to `localhost`, and a self-signed one, in the server's folder.
fn certificates(data: &Path) {
    let script = r#"
        exec 2>/dev/null; set -e
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=authority -keyout ca.key -out ca.pem
        openssl req -newkey rsa:2048 -nodes -subj /CN=server -keyout server.key -out server.csr
        printf 'subjectAltName=DNS:localhost\nbasicConstraints=CA:FALSE\n' >server.ext
        openssl x509 -req -in server.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile server.ext -out server.crt
        openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=other -addext subjectAltName=DNS:localhost -keyout other.key -out other.pem
        chown --reference=. server.key && chmod 600 server.key
    "#;
    assert!(Command::new("sh").args(["-c", script]).current_dir(data).status().unwrap().success());
}

fn attempt(url: &str) -> Result<bool, ServerTrouble> {
    let address = Address::parse(url).unwrap();
    block_on(async {
        let connected = connect(&address, Role::Writer).await.map_err(ConnectError::trouble)?;
        let sql = "SELECT ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
        Ok(connected.client.query_one(sql, &[]).await.unwrap().get(0))
    })
}

#[test]
fn each_mode_takes_what_it_should_and_no_more() {
    let Some(server) = Server::start("-c ssl=on", certificates) else { return };
    let named = format!("postgresql://postgres@localhost:{}/postgres?hostaddr=127.0.0.1", server.port);
    let numbered = format!("postgresql://postgres@127.0.0.1:{}/postgres?x", server.port).replace("?x", "?");
    let (ca, other) = (server.data.join("ca.pem"), server.data.join("other.pem"));
    let (ca, other) = (ca.display(), other.display());
    for (url, encrypted) in [
        (format!("{named}&sslmode=disable"), false),
        (named.clone(), true),
        (format!("{named}&sslmode=require"), true),
        (format!("{numbered}&sslmode=require"), true),
        (format!("{named}&sslmode=require&sslrootcert={ca}"), true),
        (format!("{named}&sslmode=verify-ca&sslrootcert={ca}"), true),
        (format!("{numbered}&sslmode=verify-ca&sslrootcert={ca}"), true),
        (format!("{named}&sslmode=verify-full&sslrootcert={ca}"), true),
        (format!("{numbered}&sslmode=prefer&sslrootcert={other}"), true),
    ] {
        assert_eq!(attempt(&url), Ok(encrypted), "{url}");
    }
    for url in [
        format!("{named}&sslmode=require&sslrootcert={other}"),
        format!("{named}&sslmode=verify-ca&sslrootcert={other}"),
        format!("{named}&sslmode=verify-ca"),
        format!("{numbered}&sslmode=verify-full&sslrootcert={ca}"),
        format!("{named}&sslmode=verify-full&sslrootcert=/nowhere.pem"),
        format!("{named}&sslmode=verify-full&sslrootcert={}", server.data.join("PG_VERSION").display()),
    ] {
        assert!(matches!(attempt(&url), Err(ServerTrouble::Tls(_))), "{url}: {:?}", attempt(&url));
    }
}

#[test]
fn passwords_are_bound_to_the_certificate_and_rules_against_encryption_are_obeyed() {
    let Some(server) = Server::start("-c ssl=on", |data| {
        certificates(data);
        let rules =
            "host all postgres all trust\nhostssl all bound all scram-sha-256\nhostnossl all plain all scram-sha-256\n";
        #[expect(clippy::disallowed_methods, reason = "a file of the test's server")]
        std::fs::write(data.join("pg_hba.conf"), rules).unwrap();
    }) else {
        return;
    };
    server.run("CREATE ROLE bound LOGIN PASSWORD 'x'; CREATE ROLE plain LOGIN PASSWORD 'x'");
    let url = |user: &str, more: &str| format!("postgresql://{user}:x@127.0.0.1:{}/postgres?{more}", server.port);
    assert_eq!(attempt(&url("bound", "channel_binding=require")), Ok(true));
    assert_eq!(attempt(&url("plain", "")), Ok(false));
    assert!(matches!(attempt(&url("plain", "sslmode=require")), Err(ServerTrouble::Login { .. })));
    assert!(matches!(attempt(&url("bound", "sslmode=disable")), Err(ServerTrouble::Login { .. })));
}

#[test]
fn a_self_signed_server_is_trusted_by_its_own_certificate() {
    let Some(server) = Server::start("-c ssl=on -c ssl_cert_file=other.pem -c ssl_key_file=other.key", |data| {
        certificates(data);
        let script = "chown --reference=. other.key && chmod 600 other.key";
        assert!(Command::new("sh").args(["-c", script]).current_dir(data).status().unwrap().success());
    }) else {
        return;
    };
    let url = |host: &str, mode: &str, roots: &str| {
        let roots = server.data.join(roots);
        format!("postgresql://postgres@{host}:{}/postgres?sslmode={mode}&sslrootcert={}", server.port, roots.display())
    };
    assert_eq!(attempt(&url("localhost", "verify-full", "other.pem")), Ok(true));
    assert!(matches!(attempt(&url("127.0.0.1", "verify-full", "other.pem")), Err(ServerTrouble::Tls(_))));
    assert!(matches!(attempt(&url("localhost", "verify-ca", "ca.pem")), Err(ServerTrouble::Tls(_))));
}
