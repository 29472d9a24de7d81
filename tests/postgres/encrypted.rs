//! Encrypted connections to a server with the certificate in the file `INDEX_TABLE_POSTGRES_CERTIFICATE`; see
//! `scripts/postgres`.

use std::{env, fs};

use index_table::{__private::run_sql, Error};

use super::{TestResult, postgres::Schema};

#[test]
fn connections_are_encrypted_and_the_certificate_is_verified() -> TestResult {
    let (Some(schema), Ok(url), Ok(certificate)) = (
        Schema::new(),
        env::var("INDEX_TABLE_POSTGRES_URL"),
        env::var("INDEX_TABLE_POSTGRES_CERTIFICATE"),
    ) else {
        eprintln!("not run: INDEX_TABLE_POSTGRES_CERTIFICATE is not set");
        return Ok(());
    };
    let encrypted = url.replace("sslmode=disable", "sslmode=require");
    assert_ne!(url, encrypted);
    // Removes the schema at the end.
    schema.open()?;
    let options = schema.options().root_certificates(&certificate);
    let sql = "SELECT ssl::text FROM pg_stat_ssl WHERE pid = pg_backend_pid()";
    assert_eq!(run_sql(&options.connect(&encrypted)?, sql)?.as_deref(), Some("true"));
    assert_eq!(run_sql(&options.connect(&url)?, sql)?.as_deref(), Some("false"));

    let untrusted = schema.options().connect(&encrypted).map(drop);
    let Err(Error::Unreachable { reason, .. }) = untrusted else { panic!("{untrusted:?}") };
    assert!(reason.contains("certificate"), "{reason}");
    // The name of the server is verified as well.
    let other_name = encrypted.replace("127.0.0.1", "localhost");
    let other_name = options.connect(&other_name).map(drop);
    assert!(matches!(other_name, Err(Error::Unreachable { .. })), "{other_name:?}");

    let directory = tempfile::tempdir()?;
    let file = directory.path().join("none.pem");
    let missing = schema.options().root_certificates(&file).connect(&encrypted).map(drop);
    assert!(matches!(missing, Err(Error::Io { .. })), "{missing:?}");
    fs::write(&file, "no certificate")?;
    let empty = schema.options().root_certificates(&file).connect(&encrypted).map(drop);
    assert!(matches!(empty, Err(Error::Io { .. })), "{empty:?}");
    Ok(())
}
