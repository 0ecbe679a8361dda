//! The known name that is most like one that is not known.

/// Longest name that is compared.
const NAME_MAX: usize = 64;

/// The name that is most like `name`, where one is like it at all: a letter off in short names,
/// up to three in long ones.
pub fn nearest<'n>(name: &str, known: impl Iterator<Item = &'n str>) -> Option<&'n str> {
    let letters = name.chars().count();
    if !(2..=NAME_MAX).contains(&letters) {
        return None;
    }
    let limit = (1 + letters / 4).min(3);
    let candidates = known.filter(|candidate| candidate.len() <= 2 * NAME_MAX).map(|candidate| (distance(name, candidate), candidate));
    candidates.filter(|(distance, _)| *distance <= limit).min_by_key(|(distance, _)| *distance).map(|(_, near)| near)
}

/// What to do about `name`, when these are the known ones.
pub fn hint<'n>(name: &str, what: &str, known: impl Iterator<Item = &'n str> + Clone) -> String {
    match nearest(name, known.clone()) {
        Some(near) => format!("did you mean '{near}'?"),
        None => format!("known {what}: {}", known.take(30).collect::<Vec<_>>().join(", ")),
    }
}

/// Edits (insert, delete, replace) from one word to another.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = i;
        let mut left = i + 1;
        for (cell, b) in row.iter_mut().skip(1).zip(&to) {
            let above = *cell;
            let replaced = diagonal + usize::from(a != *b);
            left = replaced.min(above + 1).min(left + 1);
            diagonal = above;
            *cell = left;
        }
        if let Some(first) = row.first_mut() {
            *first = i + 1;
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::nearest;

    #[test]
    fn the_nearest_name_is_near() {
        let known = ["parallelism", "max_parallelism", "placement", "k"];
        assert_eq!(nearest("paralelism", known.into_iter()), Some("parallelism"));
        assert_eq!(nearest("placment", known.into_iter()), Some("placement"));
        assert_eq!(nearest("zzz", known.into_iter()), None);
        assert_eq!(nearest("kk", known.into_iter()), Some("k"));
        assert_eq!(nearest("m", known.into_iter()), None, "one letter is like any other");
        assert_eq!(nearest(&"p".repeat(1_000_000), known.into_iter()), None);
    }
}
