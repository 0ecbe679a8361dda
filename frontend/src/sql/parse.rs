//! Text to statements. The text is cut into tokens once, with their places; statements that are
//! Weir's own are read here, and everything else is handed to sqlparser with its tokens, so that
//! places stay right.

mod object;

use super::cursor::{Cursor, syntax};
use super::duration::timeout;
use super::limit;
use super::place::Places;
use super::statement::{Body, CreateJob, ExplainFormat, JobChange, ObjectKind, Show};
use crate::error::{Error, sqlstate};
use object::{create_sink, create_source, if_not_exists, with_options};
use sqlparser::dialect::PostgreSqlDialect;
use sqlparser::parser::ParserError;
use sqlparser::tokenizer::{Token, TokenWithSpan, Tokenizer};
use std::time::Duration;
use weir_hub::hub::{StartFrom, WaitFor};
use weir_planner::id::CheckpointId;
use weir_planner::manifest::CheckpointKind;

/// `TIMEOUT` when none is given.
const TIMEOUT_DEFAULT: Duration = Duration::from_secs(30);

/// Every statement of a text.
///
/// Errors: `42601` and others, with the position in the whole text.
pub(crate) fn statements(text: &str) -> Result<(Places, Vec<Body>), Error> {
    limit::text(text)?;
    let places = Places::new(text);
    let tokens = Tokenizer::new(&PostgreSqlDialect {}, text).tokenize_with_location().map_err(|error| {
        let position = places.offset(error.location).unwrap_or(1);
        syntax(&ParserError::TokenizerError(error.message), &places, position)
    })?;
    let tokens: Vec<TokenWithSpan> = tokens.into_iter().filter(|token| !matches!(token.token, Token::Whitespace(_) | Token::EOF)).collect();
    let mut bodies = Vec::new();
    for statement in tokens.split(|token| token.token == Token::SemiColon) {
        if !statement.is_empty() {
            limit::depth(statement, &places)?;
            bodies.push(body(Cursor::new(statement, &places))?);
        }
    }
    Ok((places, bodies))
}

fn body(mut cursor: Cursor<'_>) -> Result<Body, Error> {
    if cursor.sees("create") {
        return create(cursor);
    }
    if cursor.sees("explain") && explains_job(&cursor) {
        return explain(cursor);
    }
    if cursor.take(&["alter", "job"]) {
        return alter_job(cursor);
    }
    if cursor.sees("alter") {
        return Err(later(&cursor, cursor.sees_ahead(1, "user"), "ALTER"));
    }
    if cursor.take(&["drop"]) {
        return drop_object(cursor);
    }
    if cursor.sees("show")
        && let Some(show) = show(&mut cursor)?
    {
        cursor.end()?;
        return Ok(Body::Show(show));
    }
    if cursor.take(&["describe"]) || cursor.take(&["desc"]) {
        let name = cursor.name("the name of a source, sink or job")?;
        cursor.end()?;
        return Ok(Body::Describe(name));
    }
    if cursor.take(&["wait"]) {
        return wait(cursor);
    }
    if cursor.take(&["checkpoint", "job"]) {
        return checkpoint(cursor, CheckpointKind::Checkpoint);
    }
    if cursor.take(&["savepoint", "job"]) {
        return checkpoint(cursor, CheckpointKind::Savepoint);
    }
    if cursor.sees("checkpoint") {
        cursor.expect("checkpoint")?;
        return Err(cursor.expected("JOB"));
    }
    let rest = cursor.take_rest();
    let statement = cursor.parse(rest, |parser| parser.parse_statement())?;
    Ok(Body::Postgres(Box::new(statement)))
}

/// `0A000` for what a later version brings, or for what Weir does not have.
fn later(cursor: &Cursor<'_>, planned: bool, what: &str) -> Error {
    let error = if planned {
        Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} is not available yet"))
    } else {
        Error::new(sqlstate::FEATURE_NOT_SUPPORTED, format!("{what} of this kind of object is not available"))
            .with_hint("Weir has sources, sinks and jobs: CREATE SOURCE, CREATE SINK, CREATE JOB … AS SELECT …")
    };
    error.at(cursor.position())
}

fn create(mut cursor: Cursor<'_>) -> Result<Body, Error> {
    cursor.expect("create")?;
    let or_replace = cursor.take(&["or", "replace"]);
    if cursor.take(&["source"]) {
        return create_source(cursor, or_replace);
    }
    if cursor.take(&["sink"]) {
        return create_sink(cursor, or_replace);
    }
    if cursor.sees("job") {
        if or_replace {
            return Err(Error::new(
                sqlstate::FEATURE_NOT_SUPPORTED,
                "CREATE OR REPLACE JOB is not available: a job's state belongs to its query",
            )
            .with_hint("DROP JOB deletes the job with its state and results; then CREATE JOB makes the new one")
            .at(cursor.position()));
        }
        cursor.expect("job")?;
        return Ok(Body::CreateJob(Box::new(create_job(cursor)?)));
    }
    for (word, what) in [("view", "CREATE VIEW"), ("secret", "CREATE SECRET"), ("user", "CREATE USER"), ("token", "CREATE TOKEN")] {
        if cursor.sees(word) {
            return Err(later(&cursor, true, what));
        }
    }
    for word in
        ["table", "materialized", "index", "schema", "database", "function", "extension", "role", "type", "sequence", "temp", "temporary"]
    {
        if cursor.sees(word) {
            return Err(later(&cursor, false, "CREATE"));
        }
    }
    Err(cursor.expected("SOURCE, SINK or JOB"))
}

fn create_job(mut cursor: Cursor<'_>) -> Result<CreateJob, Error> {
    let if_not_exists = if_not_exists(&mut cursor, false)?;
    let name = cursor.name("the job's name")?;
    let into = if cursor.take(&["into"]) { Some(cursor.name("the sink's name")?) } else { None };
    let options = with_options(&mut cursor)?;
    cursor.expect("AS")?;
    let query_position = cursor.position();
    if !cursor.sees("select") && !cursor.sees("with") && cursor.peek() != Some(&Token::LParen) {
        return Err(cursor.expected("SELECT"));
    }
    let tokens = without_table_keyword(cursor.take_rest());
    let query = cursor.parse_query(&tokens)?;
    let sql = cursor.sql();
    Ok(CreateJob { if_not_exists, name, into, options, query, query_position, sql })
}

/// Drops TABLE where it introduces an argument, as in `TUMBLE(TABLE bids, …)`: sqlparser does not
/// know it there, and without it the call reads the same.
fn without_table_keyword(tokens: &[TokenWithSpan]) -> Vec<TokenWithSpan> {
    let mut kept: Vec<TokenWithSpan> = Vec::with_capacity(tokens.len());
    for token in tokens {
        let introduces =
            matches!(&token.token, Token::Word(word) if word.quote_style.is_none() && word.value.eq_ignore_ascii_case("table"));
        let opens = matches!(kept.last().map(|before| &before.token), Some(Token::LParen | Token::Comma | Token::RArrow));
        if !(introduces && opens) {
            kept.push(token.clone());
        }
    }
    kept
}

fn explains_job(cursor: &Cursor<'_>) -> bool {
    let bracketed = (1..=6).find(|&ahead| cursor.sees_ahead(ahead, "create"));
    bracketed.is_some_and(|ahead| cursor.sees_ahead(ahead + 1, "job"))
}

fn explain(mut cursor: Cursor<'_>) -> Result<Body, Error> {
    cursor.expect("explain")?;
    let mut format = ExplainFormat::Text;
    if cursor.take_token(&Token::LParen) {
        cursor.expect("FORMAT")?;
        format = if cursor.take(&["text"]) {
            ExplainFormat::Text
        } else if cursor.take(&["json"]) {
            ExplainFormat::Json
        } else if cursor.take(&["dot"]) {
            ExplainFormat::Dot
        } else if cursor.take(&["yaml"]) {
            ExplainFormat::Yaml
        } else {
            return Err(cursor.expected("TEXT, JSON, DOT or YAML"));
        };
        cursor.expect_token(&Token::RParen)?;
    }
    cursor.expect("create")?;
    cursor.expect("job")?;
    Ok(Body::Explain { format, job: Box::new(create_job(cursor)?) })
}

fn alter_job(mut cursor: Cursor<'_>) -> Result<Body, Error> {
    let job = cursor.name("the job's name")?;
    let change = if cursor.take(&["start"]) {
        let from = if cursor.take(&["from"]) {
            if !cursor.take(&["savepoint"]) && !cursor.take(&["checkpoint"]) {
                return Err(cursor.expected("SAVEPOINT or CHECKPOINT"));
            }
            StartFrom::Checkpoint(checkpoint_id(&mut cursor)?)
        } else if cursor.take(&["fresh"]) {
            StartFrom::Fresh
        } else {
            StartFrom::Newest
        };
        JobChange::Start(from)
    } else if cursor.take(&["stop"]) {
        let savepoint = cursor.take(&["with"]);
        if savepoint {
            cursor.expect("SAVEPOINT")?;
        }
        JobChange::Stop { savepoint }
    } else if cursor.take(&["restart"]) {
        JobChange::Restart
    } else if cursor.sees("upgrade") || cursor.sees("rollback") || cursor.sees("set") {
        return Err(later(&cursor, true, "ALTER JOB … UPGRADE, ROLLBACK or SET"));
    } else {
        return Err(cursor.expected("START, STOP or RESTART"));
    };
    cursor.end()?;
    Ok(Body::AlterJob { job, change })
}

fn object_kind(cursor: &mut Cursor<'_>) -> Option<ObjectKind> {
    let kinds = [("job", ObjectKind::Job), ("source", ObjectKind::Source), ("sink", ObjectKind::Sink)];
    kinds.into_iter().find(|(word, _)| cursor.take(&[word])).map(|(_, kind)| kind)
}

/// The number of a checkpoint or savepoint.
fn checkpoint_id(cursor: &mut Cursor<'_>) -> Result<CheckpointId, Error> {
    let position = cursor.position();
    let text = cursor.value_text()?;
    text.parse().map(CheckpointId::new).map_err(|_| {
        Error::new(sqlstate::SYNTAX_ERROR, format!("'{text}' is not the number of a checkpoint or savepoint"))
            .with_hint("SELECT id, job, kind, state FROM weir.job_checkpoints lists them")
            .at(position)
    })
}

fn checkpoint(mut cursor: Cursor<'_>, kind: CheckpointKind) -> Result<Body, Error> {
    let job = cursor.name("the job's name")?;
    let timeout = patience(&mut cursor)?;
    cursor.end()?;
    Ok(Body::Checkpoint { job, kind, timeout })
}

/// `TIMEOUT '30s'`, or what holds without it.
fn patience(cursor: &mut Cursor<'_>) -> Result<Duration, Error> {
    if !cursor.take(&["timeout"]) {
        return Ok(TIMEOUT_DEFAULT);
    }
    let position = cursor.position();
    let text = cursor.string("a duration such as '30s'")?;
    timeout(&text).ok_or_else(|| {
        Error::new(sqlstate::INVALID_PARAMETER_VALUE, format!("'{text}' is not a duration of at most a day"))
            .with_hint("write for example '500ms', '30s' or '5m'")
            .at(position)
    })
}

fn drop_object(mut cursor: Cursor<'_>) -> Result<Body, Error> {
    if cursor.take(&["savepoint"]) {
        let position = cursor.position();
        let id = checkpoint_id(&mut cursor)?;
        cursor.end()?;
        return Ok(Body::DropSavepoint { id, position });
    }
    let Some(kind) = object_kind(&mut cursor) else {
        for (word, what) in [("view", "DROP VIEW"), ("secret", "DROP SECRET"), ("user", "DROP USER"), ("agent", "DROP AGENT")] {
            if cursor.sees(word) {
                return Err(later(&cursor, true, what));
            }
        }
        if cursor.sees("table") {
            return Err(later(&cursor, false, "DROP"));
        }
        return Err(cursor.expected("JOB, SOURCE or SINK"));
    };
    let if_exists = cursor.take(&["if", "exists"]);
    let name = cursor.name(&format!("the {}'s name", kind.word()))?;
    if cursor.sees("with") {
        return Err(later(&cursor, true, "DROP … WITH"));
    }
    let cascade = cursor.take(&["cascade"]);
    if !cascade {
        cursor.take(&["restrict"]);
    }
    cursor.end()?;
    Ok(Body::Drop { kind, name, if_exists, cascade })
}

/// A SHOW of ours; `None` leaves it to Postgres (`SHOW server_version`).
fn show(cursor: &mut Cursor<'_>) -> Result<Option<Show>, Error> {
    let plain = [
        ("jobs", Show::Jobs),
        ("sources", Show::Sources),
        ("sinks", Show::Sinks),
        ("agents", Show::Agents),
        ("connectors", Show::Connectors),
    ];
    for (word, show) in plain {
        if cursor.take(&["show", word]) {
            return Ok(Some(show));
        }
    }
    if cursor.take(&["show", "create"]) {
        let kind = object_kind(cursor).ok_or_else(|| cursor.expected("JOB, SOURCE or SINK"))?;
        return Ok(Some(Show::Create { kind, name: cursor.name(&format!("the {}'s name", kind.word()))? }));
    }
    for (word, savepoints) in [("checkpoints", false), ("savepoints", true)] {
        if cursor.take(&["show", word]) {
            cursor.expect("FOR")?;
            return Ok(Some(Show::Checkpoints { job: cursor.name("the job's name")?, savepoints }));
        }
    }
    if cursor.take(&["show", "job", "spec"]) {
        return Ok(Some(Show::JobSpec(cursor.name("the job's name")?)));
    }
    for (word, what) in [("views", "SHOW VIEWS"), ("users", "SHOW USERS")] {
        if cursor.sees_ahead(1, word) {
            return Err(later(cursor, true, what));
        }
    }
    Ok(None)
}

fn wait(mut cursor: Cursor<'_>) -> Result<Body, Error> {
    cursor.expect("FOR")?;
    cursor.expect("JOB")?;
    let job = cursor.name("the job's name")?;
    cursor.expect("UNTIL")?;
    let until = if cursor.take(&["running"]) {
        WaitFor::Running
    } else if cursor.take(&["finished"]) {
        WaitFor::Finished
    } else if cursor.take(&["stopped"]) {
        WaitFor::Stopped
    } else {
        return Err(cursor.expected("RUNNING, FINISHED or STOPPED"));
    };
    let timeout = patience(&mut cursor)?;
    cursor.end()?;
    Ok(Body::Wait { job, until, timeout })
}

#[cfg(test)]
mod tests;
