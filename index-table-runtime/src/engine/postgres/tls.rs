//! Encrypted connections, with the Cargo feature `postgres-tls`.

#[cfg(feature = "postgres-tls")]
pub(super) use rustls::{Tls, tls};

#[cfg(not(feature = "postgres-tls"))]
pub(super) use tokio_postgres::NoTls as Tls;

/// Returns the client of encrypted connections. Without the feature, connections that need one fail.
#[cfg(not(feature = "postgres-tls"))]
#[expect(clippy::unnecessary_wraps, reason = "as with the feature")]
pub(super) const fn tls(_: Option<&std::path::Path>) -> crate::Result<Tls> {
    Ok(Tls)
}

#[cfg(feature = "postgres-tls")]
mod rustls {
    use std::{fs, io, path::Path, sync::Arc};

    use ::rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, pem::PemObject as _},
    };
    pub(in super::super) use tokio_postgres_rustls::MakeRustlsConnect as Tls;

    use crate::model::error::{Error, Result};

    /// Returns the client of encrypted connections, which trusts the certificates in this file, or those of the system.
    pub(in super::super) fn tls(roots: Option<&Path>) -> Result<Tls> {
        let path = roots.unwrap_or_else(|| Path::new("PostgreSQL"));
        let failed = |source| Error::Io { path: path.to_owned(), source };
        let invalid = |error: &dyn std::error::Error| {
            let reason = format!("the certificates can't be used: {error}");
            failed(io::Error::new(io::ErrorKind::InvalidData, reason))
        };
        let mut store = RootCertStore::empty();
        match roots {
            Some(path) => {
                let pem = fs::read(path).map_err(failed)?;
                for certificate in CertificateDer::pem_slice_iter(&pem) {
                    let certificate = certificate.map_err(|error| invalid(&error))?;
                    store.add(certificate).map_err(|error| invalid(&error))?;
                }
                if store.is_empty() {
                    let source =
                        io::Error::new(io::ErrorKind::InvalidData, "it has no certificate");
                    return Err(failed(source));
                }
            }
            // Without certificates, encrypted connections fail with an error about the missing certificates.
            None => drop(
                store.add_parsable_certificates(rustls_native_certs::load_native_certs().certs),
            ),
        }
        // The provider is named, because a program may have linked several providers.
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
        let config = config.with_safe_default_protocol_versions();
        let config = config.map_err(|error| invalid(&error))?;
        Ok(Tls::new(config.with_root_certificates(store).with_no_client_auth()))
    }
}
