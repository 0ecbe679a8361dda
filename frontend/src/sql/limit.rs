//! Bounds on what is parsed, so that no text can exhaust the stack (L2).
//!
//! A tree as deep as its text is long comes from chains without brackets, such as `1+1+…` or
//! `a OR b OR …`: each operator puts one more level on top. The parser builds such a chain in a
//! loop, but everything that later walks or drops it recurses. So the depth is bounded before
//! parsing: operators since the last comma, plus the deepest bracket seen since then. Brackets
//! themselves are bounded by the parser's own recursion limit.

use super::place::Places;
use crate::error::{Error, sqlstate};
use sqlparser::tokenizer::{Token, TokenWithSpan};

/// Longest text, in bytes.
pub(crate) const TEXT_BYTES_MAX: usize = 1 << 20;
/// Deepest chain of operators, brackets within it included.
pub(crate) const OPERATORS_MAX: usize = 500;
/// Deepest nesting of brackets, calls, subqueries and CASE.
pub(crate) const NESTING_MAX: usize = 50;
/// Most function calls within each other: planning asks a call for its type twice, and it each of
/// its arguments, so that the work doubles with each level.
pub(crate) const CALLS_MAX: usize = 16;
/// What the parser's own counter may reach: it counts several times a bracket, and signs and NOT.
pub(crate) const PARSER_DEPTH_MAX: usize = 300;

/// Refuses a text over the limit.
pub(crate) fn text(text: &str) -> Result<(), Error> {
    if text.len() <= TEXT_BYTES_MAX {
        return Ok(());
    }
    Err(Error::new(sqlstate::PROGRAM_LIMIT_EXCEEDED, format!("the text has {} bytes, more than {TEXT_BYTES_MAX}", text.len()))
        .with_hint("send fewer statements at a time"))
}

/// Refuses a statement whose tree could get too deep.
pub(crate) fn depth(tokens: &[TokenWithSpan], places: &Places) -> Result<(), Error> {
    /// Of one bracket level: operators since the last comma, and the deepest bracket closed since.
    #[derive(Clone, Copy, Default)]
    struct Level {
        operators: usize,
        inner: usize,
        deepest: usize,
        /// Opened by CASE, closed by END.
        is_case: bool,
        /// Function calls around it.
        calls: usize,
    }
    let mut after_name = false;
    let mut levels = vec![Level::default()];
    for token in tokens {
        let calls = levels.last().map_or(0, |level| level.calls);
        let called = after_name && matches!(token.token, Token::LParen);
        if !matches!(token.token, Token::Whitespace(_)) {
            after_name = matches!(&token.token, Token::Word(word) if !before_bracket(&word.value));
        }
        if called && calls == CALLS_MAX {
            let error = Error::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("function calls are nested too deeply: at most {CALLS_MAX} within each other are taken"),
            )
            .with_hint("compute the inner part in a subquery in FROM");
            return Err(Error { position: places.start(token.span), ..error });
        }
        let too_deep = match &token.token {
            Token::LParen | Token::LBracket => {
                levels.push(Level { calls: calls + usize::from(called), ..Level::default() });
                levels.len() > NESTING_MAX + 1
            }
            token if is_word(token, "case") => {
                levels.push(Level { is_case: true, calls, ..Level::default() });
                levels.len() > NESTING_MAX + 1
            }
            token
                if matches!(token, Token::RParen | Token::RBracket)
                    || (is_word(token, "end") && levels.last().is_some_and(|level| level.is_case)) =>
            {
                if levels.len() > 1
                    && let Some(closed) = levels.pop()
                    && let Some(outer) = levels.last_mut()
                {
                    outer.inner = outer.inner.max(closed.deepest.max(closed.operators + closed.inner));
                }
                false
            }
            Token::Comma => {
                if let Some(level) = levels.last_mut() {
                    level.deepest = level.deepest.max(level.operators + level.inner);
                    (level.operators, level.inner) = (0, 0);
                }
                false
            }
            other if deepens(other) => {
                if let Some(level) = levels.last_mut() {
                    level.operators += 1;
                }
                false
            }
            _ => false,
        };
        let chain = levels.last().map_or(0, |level| level.operators + level.inner);
        if too_deep || chain > OPERATORS_MAX {
            return Err(too_deep_at(places.start(token.span)));
        }
    }
    Ok(())
}

/// The error for a statement that is too deep.
pub(crate) fn too_deep_at(position: Option<usize>) -> Error {
    let error = Error::new(
        sqlstate::PROGRAM_LIMIT_EXCEEDED,
        format!("the statement is nested too deeply: at most {NESTING_MAX} brackets and {OPERATORS_MAX} operators in a row are taken"),
    )
    .with_hint("split the expression up, for example with IN (…) or a subquery");
    Error { position, ..error }
}

fn is_word(token: &Token, word: &str) -> bool {
    matches!(token, Token::Word(found) if found.quote_style.is_none() && found.value.eq_ignore_ascii_case(word))
}

/// Words that stand before a bracket without calling anything.
fn before_bracket(word: &str) -> bool {
    const WORDS: [&str; 28] = [
        "select", "distinct", "from", "join", "lateral", "where", "and", "or", "not", "in", "any", "all", "some", "exists", "when", "then",
        "else", "case", "as", "on", "using", "by", "having", "over", "filter", "values", "union", "array",
    ];
    WORDS.iter().any(|known| word.eq_ignore_ascii_case(known))
}

/// Tokens that can put one more level on a tree.
fn deepens(token: &Token) -> bool {
    match token {
        Token::Word(word) => {
            const WORDS: [&str; 17] = [
                "and", "or", "not", "is", "isnull", "notnull", "like", "ilike", "between", "in", "similar", "at", "collate", "union",
                "intersect", "except", "join",
            ];
            word.quote_style.is_none() && WORDS.iter().any(|known| word.value.eq_ignore_ascii_case(known))
        }
        Token::Number(..)
        | Token::SingleQuotedString(_)
        | Token::Placeholder(_)
        | Token::Whitespace(_)
        | Token::Period
        | Token::SemiColon
        | Token::EOF => false,
        _ => true,
    }
}

/// Stack of the thread that plans: planning recurses into expressions, and a session's own stack
/// is small.
const PLANNING_STACK_BYTES: usize = 32 << 20;

/// Runs `plan` on a thread with a deep stack and waits for it.
///
/// Errors: `53000` when the machine gives no thread, `XX000` when planning panicked.
pub(crate) fn on_deep_stack<T: Send>(plan: impl FnOnce() -> Result<T, Error> + Send) -> Result<T, Error> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name("plan".to_owned()).stack_size(PLANNING_STACK_BYTES).spawn_scoped(scope, plan);
        match thread {
            Ok(thread) => thread.join().unwrap_or_else(|_| {
                Err(Error::new(sqlstate::INTERNAL_ERROR, "planning broke off: this is a fault of Weir, please report it"))
            }),
            Err(error) => Err(Error::new("53000", format!("no thread to plan on: {error}"))),
        }
    })
}
