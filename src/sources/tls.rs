//! TLS towards a source, from files that are read anew each time, so that a rotated certificate is used at once.

use std::{path::Path, sync::Arc};

use hyper_rustls::ConfigBuilderExt as _;
use rustls::{
    ClientConfig, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
    client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    crypto::{CryptoProvider, aws_lc_rs, verify_tls12_signature, verify_tls13_signature},
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject as _},
    },
};

use super::http_client::SetupError;
use crate::policy::TlsOptions;

/// What a connection uses. Without `https` no file is read: a machine without authorities can still speak plain HTTP.
pub(super) fn client_config(options: &TlsOptions, https: bool) -> Result<ClientConfig, SetupError> {
    let provider = Arc::new(aws_lc_rs::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(SetupError::Tls)?;
    if !https {
        return Ok(builder.with_root_certificates(RootCertStore::empty()).with_no_client_auth());
    }
    let builder = if options.insecure_skip_verify {
        builder.dangerous().with_custom_certificate_verifier(Arc::new(Unverified(provider)))
    } else if let Some(file) = &options.ca_file {
        let mut roots = RootCertStore::empty();
        for authority in certificates("ca_file", file)? {
            roots.add(authority).map_err(SetupError::Tls)?;
        }
        builder.with_root_certificates(roots)
    } else {
        builder.with_native_roots().map_err(SetupError::NoAuthorities)?
    };
    match &options.identity {
        None => Ok(builder.with_no_client_auth()),
        Some(identity) => {
            let chain = certificates("cert_file", &identity.cert_file)?;
            let key =
                PrivateKeyDer::from_pem_file(&identity.key_file).map_err(|e| unreadable("key_file", &identity.key_file, &e))?;
            builder.with_client_auth_cert(chain, key).map_err(SetupError::Tls)
        }
    }
}

fn certificates(option: &'static str, file: &Path) -> Result<Vec<CertificateDer<'static>>, SetupError> {
    let read = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    match read {
        Ok(found) if found.is_empty() => Err(unreadable(option, file, &pem::Error::NoItemsFound)),
        Ok(found) => Ok(found),
        Err(e) => Err(unreadable(option, file, &e)),
    }
}

fn unreadable(option: &'static str, file: &Path, error: &pem::Error) -> SetupError {
    // The other errors quote what stands in the file.
    let reason = match error {
        pem::Error::Io(e) => e.to_string(),
        pem::Error::NoItemsFound => "nothing of that kind is in it".to_owned(),
        _ => "it is not in PEM format".to_owned(),
    };
    SetupError::File { option, file: file.to_owned(), reason }
}

/// `insecure_skip_verify`: any certificate will do. Its holder must still prove to have the key.
#[derive(Debug)]
struct Unverified(Arc<CryptoProvider>);

impl ServerCertVerifier for Unverified {
    fn verify_server_cert(
        &self,
        _end_entity: &CertificateDer<'_>,
        _intermediates: &[CertificateDer<'_>],
        _server_name: &ServerName<'_>,
        _ocsp_response: &[u8],
        _now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        dss: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, cert, dss, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
