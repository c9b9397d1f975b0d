//! Files of one side, and the configurations made of them, which change with the files.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use sha2::{Digest as _, Sha256};
use tokio_util::sync::CancellationToken;
use x509_parser::parse_x509_certificate;
use x509_parser::time::ASN1Time;

use crate::tls::trust::File;
use crate::tls::{Application, Expiry, TlsError, trust};

/// Files of a server or a client.
pub trait Side {
    /// rustls's configuration of this side.
    type Config: Clone;

    /// Certificate and key of this side; authorities and revocation lists for the other.
    fn paths(&self) -> [Option<&PathBuf>; 4];

    /// Makes the configuration of what was read, and returns when that expires.
    fn configure(&self, contents: Contents<'_>) -> Result<(Self::Config, Expiry), TlsError>;

    /// Has the configuration offer one application alone.
    fn speak(config: &mut Self::Config, application: Application);
}

/// Contents of the files of one side.
pub struct Contents<'a> {
    certificate: Option<File<'a>>,
    key: Option<File<'a>>,
    pub(crate) ca: Option<File<'a>>,
    pub(crate) crl: Option<File<'a>>,
}

/// Certificate chain with its file and its key, and when the first of the chain expires. A
/// certificate that cannot be read is left out of that: rustls says whether it can be used.
pub(crate) struct Chain<'a> {
    pub(crate) file: &'a File<'a>,
    pub(crate) certificates: Vec<CertificateDer<'static>>,
    pub(crate) key: PrivateKeyDer<'static>,
    pub(crate) expires: Option<i64>,
}

/// Digests of the files that there are: of the identity's two, the authorities and the lists.
type Digests = [Option<[u8; 32]>; 4];

impl<'a> Contents<'a> {
    fn read(side: &'a impl Side) -> Result<Self, TlsError> {
        let [certificate, key, ca, crl] = side.paths();
        let read = |path: Option<&'a PathBuf>| path.map(|path| File::read(path)).transpose();
        Ok(Self {
            certificate: read(certificate)?,
            key: read(key)?,
            ca: read(ca)?,
            crl: read(crl)?,
        })
    }

    fn digests(&self) -> Digests {
        let files = [&self.certificate, &self.key, &self.ca, &self.crl];
        files.map(|file| Some(Sha256::digest(&file.as_ref()?.bytes).into()))
    }

    pub(crate) fn chain(&self) -> Result<Option<Chain<'_>>, TlsError> {
        let (Some(file), Some(key)) = (&self.certificate, &self.key) else { return Ok(None) };
        let certificates = file.certificates()?;
        let expiry = |certificate: &CertificateDer<'_>| {
            let (_, certificate) = parse_x509_certificate(certificate).ok()?;
            Some(certificate.validity().not_after.timestamp())
        };
        let expires = certificates.iter().filter_map(expiry).min();
        let key = PrivateKeyDer::from_pem_slice(&key.bytes)
            .map_err(|_| TlsError::Empty { path: key.path.to_owned(), what: "private key" })?;
        Ok(Some(Chain { file, certificates, key, expires }))
    }
}

/// TLS settings of one side, read from files and read again.
pub struct Credentials<F: Side> {
    files: F,
    current: ArcSwap<Current<F::Config>>,
    reloading: Mutex<()>,
}

/// Configurations made of the files as they were read last.
struct Current<C> {
    digests: Digests,
    generation: u64,
    /// Cancelled when the authorities or the revocation lists are other ones.
    outdated: CancellationToken,
    expiry: Expiry,
    http1: Arc<C>,
    http2: Arc<C>,
}

impl<F: Side> Credentials<F> {
    /// Reads the files.
    pub fn load(files: F) -> Result<Self, TlsError> {
        let this = Self::read(files)?;
        this.check_expiry(&this.current.load())?;
        Ok(this)
    }

    pub(crate) fn read(files: F) -> Result<Self, TlsError> {
        let contents = Contents::read(&files)?;
        let current = Current::of::<F>(contents.digests(), files.configure(contents)?);
        Ok(Self { files, current: ArcSwap::from_pointee(current), reloading: Mutex::default() })
    }

    /// Returns the paths of its files.
    pub fn files(&self) -> &F {
        &self.files
    }

    /// When what it has now expires.
    pub fn expiry(&self) -> Expiry {
        self.current.load().expiry
    }

    /// Grows with every change: connections of an earlier one were made with other certificates.
    pub fn generation(&self) -> u64 {
        self.current.load().generation
    }

    /// Returns a token that is cancelled when the set of accepted peers changes. Take it before
    /// the configuration: a peer that was accepted under an older token may not be accepted now.
    pub fn outdated(&self) -> CancellationToken {
        self.current.load().outdated.clone()
    }

    pub(crate) fn config(&self, application: Application) -> Arc<F::Config> {
        let current = self.current.load();
        Arc::clone(match application {
            Application::Http1 => &current.http1,
            Application::Http2 => &current.http2,
        })
    }

    /// Reads the files again; whether they had changed.
    ///
    /// # Errors
    /// [`TlsError`]; what was read before stays.
    pub fn reload(&self) -> Result<bool, TlsError> {
        let _one_at_a_time = self.reloading.lock();
        let contents = Contents::read(&self.files)?;
        let (before, digests) = (self.current.load(), contents.digests());
        if digests == before.digests {
            self.check_expiry(&before)?;
            return Ok(false);
        }
        let mut after = Current::of::<F>(digests, self.files.configure(contents)?);
        after.generation = before.generation + 1;
        let [.., ca_before, list_before] = before.digests;
        let [.., ca, list] = after.digests;
        // That the list in use is overdue, which is told when nothing else has changed, keeps no
        // other file from being renewed.
        if list != list_before {
            self.check_expiry(&after)?;
        }
        let same_peers = (ca, list) == (ca_before, list_before);
        if same_peers {
            after.outdated = before.outdated.clone();
        }
        self.current.store(Arc::new(after));
        if !same_peers {
            before.outdated.cancel();
        }
        Ok(true)
    }

    /// Reads the files again, and tells the log if they had changed, or are unsound.
    pub fn reload_and_log(&self) {
        let [certificate, _, ca, _] = self.files.paths();
        let file = certificate.or(ca);
        let file = file.map(|file| tracing::field::display(file.display()));
        match self.reload() {
            Ok(false) => {}
            Ok(true) => tracing::info!(file, "new certificates"),
            Err(error) => tracing::error!(file, %error, "the certificates of before stay"),
        }
    }

    fn check_expiry(&self, read: &Current<F::Config>) -> Result<(), TlsError> {
        let [.., list] = self.files.paths();
        trust::check_expiry(list, read.expiry.revocation_lists, ASN1Time::now().timestamp())
    }
}

impl<C: Clone> Current<C> {
    fn of<F: Side<Config = C>>(digests: Digests, (config, expiry): (C, Expiry)) -> Self {
        let speaking = |application| {
            let mut config = config.clone();
            F::speak(&mut config, application);
            Arc::new(config)
        };
        Self {
            digests,
            generation: 0,
            outdated: CancellationToken::new(),
            expiry,
            http1: speaking(Application::Http1),
            http2: speaking(Application::Http2),
        }
    }
}

impl<F: Side + fmt::Debug> fmt::Debug for Credentials<F> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.files.fmt(formatter)
    }
}
