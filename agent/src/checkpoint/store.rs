//! The state store: an object store below a URL, with bounded patience and errors that say what to do.

use crate::error::Error;
use crate::secret::Environment;
use crate::segment::make_dir;
use bytes::Bytes;
use futures::TryStreamExt;
use futures::stream::{self, StreamExt};
use object_store::aws::{AmazonS3Builder, AmazonS3ConfigKey};
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::prefix::PrefixStore;
use object_store::{ClientOptions, ObjectStore, ObjectStoreExt, PutMode, PutOptions, RetryConfig};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use weir_planner::error::Class;

/// A request is tried again so often.
const RETRIES: usize = 3;
/// All tries of a request take so long at most.
const PATIENCE: Duration = Duration::from_secs(20);
/// One try takes so long at most.
const REQUEST: Duration = Duration::from_secs(15);
/// Objects that are larger go in parts of this many bytes.
const PART_BYTES: usize = 32 << 20;

/// Settings of S3 that are looked up, as their variables are named everywhere.
const S3_SETTINGS: [(&str, AmazonS3ConfigKey); 6] = [
    ("AWS_ACCESS_KEY_ID", AmazonS3ConfigKey::AccessKeyId),
    ("AWS_SECRET_ACCESS_KEY", AmazonS3ConfigKey::SecretAccessKey),
    ("AWS_SESSION_TOKEN", AmazonS3ConfigKey::Token),
    ("AWS_DEFAULT_REGION", AmazonS3ConfigKey::DefaultRegion),
    ("AWS_REGION", AmazonS3ConfigKey::Region),
    ("AWS_ENDPOINT_URL", AmazonS3ConfigKey::Endpoint),
];

/// Whether an object was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Put {
    /// It was not there.
    Made,
    /// One of this name was there, and is left as it is.
    Exists,
}

/// An object store below a URL. Cheap to clone.
#[derive(Clone, Debug)]
pub struct StateStore {
    objects: Arc<dyn ObjectStore>,
    url: String,
    /// Where it is on this machine, when it is: what is put there is synced here.
    dir: Option<PathBuf>,
}

impl StateStore {
    /// Opens `file:///path`, `s3://bucket/prefix` or `memory:///`. Nothing is asked of the store yet; a directory is made.
    ///
    /// Errors: `User` for a URL or setting that cannot be used; `Retry` when the directory cannot be made.
    pub fn open(url: &str, environment: Environment) -> Result<Self, Error> {
        let wrong = |why: &str| {
            let message = format!("state URL '{url}' {why}: use file:///path, s3://bucket/prefix or memory:///");
            Error::new(Class::User, message)
        };
        let (scheme, rest) = url.split_once("://").ok_or_else(|| wrong("has no scheme"))?;
        if rest.contains(['@', '?', '#']) {
            // Credentials in a URL would be shown wherever it is.
            return Err(wrong("has more than a path; credentials come from the environment"));
        }
        match scheme {
            "memory" => Ok(StateStore::over(Arc::new(InMemory::new()), url)),
            "file" => StateStore::at(Path::new(rest)).map(|store| StateStore { url: url.to_owned(), ..store }),
            "s3" => {
                let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
                if bucket.is_empty() {
                    return Err(wrong("names no bucket"));
                }
                let retry = RetryConfig { max_retries: RETRIES, retry_timeout: PATIENCE, ..RetryConfig::default() };
                let plain = environment("AWS_ENDPOINT_URL").is_some_and(|endpoint| endpoint.starts_with("http://"));
                let client = ClientOptions::new().with_timeout(REQUEST).with_connect_timeout(REQUEST).with_allow_http(plain);
                let mut builder = AmazonS3Builder::new().with_bucket_name(bucket).with_retry(retry).with_client_options(client);
                for (name, key) in S3_SETTINGS {
                    if let Some(value) = environment(name) {
                        builder = builder.with_config(key, value);
                    }
                }
                let built = builder.build().map_err(|e| Error::because(Class::User, format!("state URL '{url}' cannot be used"), e))?;
                Ok(StateStore::over(Arc::new(PrefixStore::new(built, prefix.trim_end_matches('/'))), url))
            }
            _ => Err(wrong("is of an unknown kind")),
        }
    }

    /// A directory of this machine, made when it is missing.
    ///
    /// Errors: `User` for a relative path; `Retry` when it cannot be made.
    pub fn at(dir: &Path) -> Result<Self, Error> {
        if !dir.is_absolute() {
            return Err(Error::new(Class::User, format!("state directory '{}' is not an absolute path", dir.display())));
        }
        let failed = |e: std::io::Error| Error::because(Class::Retry, format!("state directory {}", dir.display()), e);
        make_dir(dir).map_err(failed)?;
        let local = LocalFileSystem::new_with_prefix(dir)
            .map_err(|e| Error::because(Class::Retry, format!("state directory {}", dir.display()), e))?;
        Ok(StateStore { objects: Arc::new(local), url: format!("file://{}", dir.display()), dir: Some(dir.to_owned()) })
    }

    /// Over a store that is open already; `url` is what people see.
    pub fn over(objects: Arc<dyn ObjectStore>, url: &str) -> Self {
        StateStore { objects, url: url.to_owned(), dir: None }
    }

    /// What people see of it; it holds no secret.
    pub fn url(&self) -> &str {
        &self.url
    }

    fn failed(&self, verb: &str, name: &str, error: object_store::Error) -> Error {
        use object_store::Error as E;
        let class = match &error {
            E::PermissionDenied { .. } | E::Unauthenticated { .. } | E::InvalidPath { .. } | E::UnknownConfigurationKey { .. } => {
                Class::User
            }
            E::NotFound { .. } => Class::Corrupt,
            _ => Class::Retry,
        };
        Error::because(class, format!("state store {}: {verb} {name}", self.url), error)
    }

    /// Puts an object durably, unless one of that name is there.
    ///
    /// Errors: `User` where access is denied, else `Retry`; then it may be there or not.
    pub async fn put_new(&self, name: &str, bytes: Bytes) -> Result<Put, Error> {
        let path = ObjectPath::from(name);
        let options = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let put = match self.objects.put_opts(&path, bytes.into(), options).await {
            Ok(_) => Put::Made,
            Err(object_store::Error::AlreadyExists { .. } | object_store::Error::Precondition { .. }) => Put::Exists,
            Err(error) => return Err(self.failed("put", name, error)),
        };
        self.synced(name).await?;
        Ok(put)
    }

    /// Puts an object durably, whatever was there under its name.
    ///
    /// Errors: as [`StateStore::put_new`].
    pub async fn put(&self, name: &str, bytes: Bytes) -> Result<(), Error> {
        let path = ObjectPath::from(name);
        if bytes.len() <= PART_BYTES {
            self.objects.put(&path, bytes.into()).await.map_err(|e| self.failed("put", name, e))?;
        } else {
            let mut upload = self.objects.put_multipart(&path).await.map_err(|e| self.failed("put", name, e))?;
            let mut rest = bytes;
            while !rest.is_empty() {
                let part = rest.split_to(rest.len().min(PART_BYTES));
                if let Err(error) = upload.put_part(part.into()).await {
                    // Best effort: stores drop what was never completed by a rule of their own.
                    let _ = upload.abort().await;
                    return Err(self.failed("put", name, error));
                }
            }
            upload.complete().await.map_err(|e| self.failed("put", name, e))?;
        }
        self.synced(name).await
    }

    /// A file system keeps what was written only after a sync of the file and of every directory up to the root.
    async fn synced(&self, name: &str) -> Result<(), Error> {
        let Some(dir) = self.dir.clone() else { return Ok(()) };
        let (url, name) = (self.url.clone(), name.to_owned());
        crate::region::blocking(move || {
            let file = dir.join(&name);
            let mut path: &Path = &file;
            while path.starts_with(&dir) {
                let sync = std::fs::File::open(path).and_then(|file| file.sync_all());
                sync.map_err(|e| Error::because(Class::Retry, format!("state store {url}: sync {name}"), e))?;
                match path.parent() {
                    Some(parent) => path = parent,
                    None => break,
                }
            }
            Ok(())
        })
        .await
    }

    /// Length of an object; `None` when it is not there.
    ///
    /// Errors: `User` where access is denied, else `Retry`.
    pub async fn length(&self, name: &str) -> Result<Option<u64>, Error> {
        match self.objects.head(&ObjectPath::from(name)).await {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("look for", name, error)),
        }
    }

    /// An object's bytes; `None` when it is not there.
    ///
    /// Errors: `User` where access is denied, else `Retry`.
    pub async fn get(&self, name: &str) -> Result<Option<Bytes>, Error> {
        let got = match self.objects.get(&ObjectPath::from(name)).await {
            Ok(got) => got.bytes().await,
            Err(error) => Err(error),
        };
        match got {
            Ok(bytes) => Ok(Some(bytes)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.failed("get", name, error)),
        }
    }

    /// Names and lengths of the objects below a directory.
    ///
    /// Errors: `User` where access is denied, else `Retry`.
    pub async fn list(&self, dir: &str) -> Result<Vec<(String, u64)>, Error> {
        let path = ObjectPath::from(dir);
        let listed = self.objects.list(Some(&path)).map_ok(|meta| (meta.location.to_string(), meta.size)).try_collect().await;
        listed.map_err(|e| self.failed("list", dir, e))
    }

    /// Files of puts that were cut off, in a store that is a directory: no listing shows them. Each with the name of the object that
    /// it was to become.
    ///
    /// Errors: `Retry` when a directory cannot be read.
    pub async fn unfinished(&self, dir: &str) -> Result<Vec<(String, PathBuf)>, Error> {
        let Some(root) = self.dir.clone() else { return Ok(Vec::new()) };
        let (url, dir) = (self.url.clone(), dir.to_owned());
        crate::region::blocking(move || {
            let mut found = Vec::new();
            let mut dirs = vec![root.join(&dir)];
            while let Some(dir) = dirs.pop() {
                let failed = |e| Error::because(Class::Retry, format!("state store {url}: list {}", dir.display()), e);
                let entries = match std::fs::read_dir(&dir) {
                    Err(e) if e.kind() == std::io::ErrorKind::NotFound => continue,
                    entries => entries.map_err(failed)?,
                };
                for entry in entries {
                    let path = entry.map_err(failed)?.path();
                    if path.is_dir() {
                        dirs.push(path);
                    } else if let Some(object) = path.strip_prefix(&root).ok().and_then(Path::to_str).and_then(unfinished_of) {
                        found.push((object.to_owned(), path));
                    }
                }
            }
            Ok(found)
        })
        .await
    }

    /// Deletes objects; one that is not there is no error.
    ///
    /// Errors: the first one, after all were tried: `User` where access is denied, else `Retry`.
    pub async fn delete(&self, names: Vec<String>) -> Result<(), Error> {
        const AT_ONCE: usize = 8;
        let deleted = stream::iter(names).map(|name| async move {
            match self.objects.delete(&ObjectPath::from(name.as_str())).await {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
                Err(error) => Err(self.failed("delete", &name, error)),
            }
        });
        let all: Vec<Result<(), Error>> = deleted.buffer_unordered(AT_ONCE).collect().await;
        all.into_iter().collect()
    }
}

/// The object that a file was to become: its name before `#` and a number.
fn unfinished_of(file: &str) -> Option<&str> {
    let (object, number) = file.rsplit_once('#')?;
    (!number.is_empty() && number.bytes().all(|digit| digit.is_ascii_digit())).then_some(object)
}

#[cfg(test)]
mod tests;
