//! The Postgres door as a client sees it: tokio-postgres' simple protocol, and psql.

use super::process::{Ended, finish};
use super::{PATIENCE, block_on, runtime};
use futures::StreamExt;
use std::fmt;
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use tokio_postgres::{AsyncMessage, Client, NoTls, SimpleQueryMessage};

/// A session.
pub struct Sql {
    client: Client,
    notices: Arc<Mutex<Vec<String>>>,
}

/// Rows as text; NULL is `NULL`.
pub type Rows = Vec<Vec<String>>;

/// A Postgres error with the fields that a person sees.
#[derive(Debug, Clone)]
pub struct SqlError {
    /// SQLSTATE; `-` when the connection broke.
    pub code: String,
    /// Message.
    pub message: String,
    /// Detail, or empty.
    pub detail: String,
    /// Hint, or empty.
    pub hint: String,
    /// Character position from 1; 0 when there is none.
    pub position: u32,
}

impl fmt::Display for SqlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code, self.message)?;
        for (name, text) in [("detail", &self.detail), ("hint", &self.hint)] {
            if !text.is_empty() {
                write!(f, " | {name}: {text}")?;
            }
        }
        if self.position > 0 { write!(f, " | position: {}", self.position) } else { Ok(()) }
    }
}

impl std::error::Error for SqlError {}

impl From<tokio_postgres::Error> for SqlError {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(db) = error.as_db_error() else {
            let cause = std::error::Error::source(&error).map(ToString::to_string).unwrap_or_default();
            return SqlError {
                code: "-".to_owned(),
                message: format!("{error} {cause}"),
                detail: String::new(),
                hint: String::new(),
                position: 0,
            };
        };
        let position = match db.position() {
            Some(tokio_postgres::error::ErrorPosition::Original(at)) => *at,
            _ => 0,
        };
        SqlError {
            code: db.code().code().to_owned(),
            message: db.message().to_owned(),
            detail: db.detail().unwrap_or_default().to_owned(),
            hint: db.hint().unwrap_or_default().to_owned(),
            position,
        }
    }
}

impl Sql {
    /// Connects; panics when nobody answers.
    pub fn connect(port: u16) -> Sql {
        Sql::try_connect(port).unwrap_or_else(|e| panic!("connecting to port {port}: {e}"))
    }

    /// Connects.
    pub fn try_connect(port: u16) -> Result<Sql, SqlError> {
        block_on(Sql::open(port))
    }

    /// Connects, on the runtime of the clients.
    pub async fn open(port: u16) -> Result<Sql, SqlError> {
        let settings = format!("host=127.0.0.1 port={port} user=weir dbname=weir connect_timeout=10");
        let (client, mut connection) = tokio_postgres::connect(&settings, NoTls).await?;
        let notices = Arc::new(Mutex::new(Vec::new()));
        let heard = Arc::clone(&notices);
        runtime().spawn(async move {
            let mut messages = futures::stream::poll_fn(move |context| connection.poll_message(context));
            while let Some(Ok(message)) = messages.next().await {
                if let AsyncMessage::Notice(notice) = message {
                    heard.lock().unwrap().push(notice.message().to_owned());
                }
            }
        });
        Ok(Sql { client, notices })
    }

    /// The client itself, for the extended protocol.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Notices so far; they are taken.
    pub fn notices(&self) -> Vec<String> {
        std::mem::take(&mut self.notices.lock().unwrap())
    }

    /// Column names and rows of a statement.
    pub fn try_table(&self, sql: &str) -> Result<(Vec<String>, Rows), SqlError> {
        let query = async { tokio::time::timeout(PATIENCE * 2, self.client.simple_query(sql)).await };
        let messages = block_on(query).unwrap_or_else(|_| panic!("no answer within {:?}: {sql}", PATIENCE * 2))?;
        let (mut names, mut rows) = (Vec::new(), Vec::new());
        for message in messages {
            match message {
                SimpleQueryMessage::RowDescription(columns) => names = columns.iter().map(|c| c.name().to_owned()).collect(),
                SimpleQueryMessage::Row(row) => rows.push((0..row.len()).map(|i| row.get(i).unwrap_or("NULL").to_owned()).collect()),
                _ => {}
            }
        }
        Ok((names, rows))
    }

    /// Rows of a statement.
    pub fn try_rows(&self, sql: &str) -> Result<Rows, SqlError> {
        self.try_table(sql).map(|(_, rows)| rows)
    }

    /// Rows of a statement that must succeed.
    pub fn rows(&self, sql: &str) -> Rows {
        self.try_rows(sql).unwrap_or_else(|e| panic!("{sql}\n  {e}"))
    }

    /// Runs a statement that must succeed.
    pub fn run(&self, sql: &str) {
        self.rows(sql);
    }

    /// The one value of a statement.
    pub fn one(&self, sql: &str) -> String {
        let rows = self.rows(sql);
        assert!(rows.len() == 1 && rows[0].len() == 1, "{sql} gave {rows:?} instead of one value");
        rows[0][0].clone()
    }

    /// The error of a statement that must fail.
    pub fn error(&self, sql: &str) -> SqlError {
        match self.try_rows(sql) {
            Err(error) => error,
            Ok(rows) => panic!("{sql}\n  should have failed and gave {rows:?}"),
        }
    }

    /// State, desired state and last error of a job.
    pub fn job(&self, job: &str) -> (String, String, String) {
        let rows = self.rows(&format!("SELECT state, desired_state, last_error FROM weir.jobs WHERE id = '{job}'"));
        assert_eq!(rows.len(), 1, "weir.jobs has no single row for {job}");
        (rows[0][0].clone(), rows[0][1].clone(), rows[0][2].clone())
    }
}

/// Runs psql with one `-c` per statement; no start-up file, no pager.
pub fn psql(port: u16, statements: &[&str]) -> Ended {
    psql_with(port, &[], statements)
}

/// psql with further arguments, such as `-A` and `-t`.
pub fn psql_with(port: u16, more: &[&str], statements: &[&str]) -> Ended {
    let mut command = Command::new("psql");
    command.args(["-X", "-P", "pager=off", "-h", "127.0.0.1", "-p", &port.to_string(), "-U", "weir"]).args(more).arg("weir");
    for statement in statements {
        command.args(["-c", statement]);
    }
    command.env("LC_ALL", "C").env_remove("PGPASSWORD").stdin(Stdio::null());
    finish(command, PATIENCE * 2)
}
