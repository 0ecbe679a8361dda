//! A file of the local log on a disk that loses power at any moment: what was confirmed is found, each once.

use super::super::Frame;
use super::super::local::{LocalLog, write};
use super::{frame, place};
use crate::power::{Dice, Disk, Event, Outage, outages};
use redb::Database;
use std::path::Path;

/// Images that a run must have tried.
const IMAGES_MIN: usize = 600;
/// Images of each moment at which changes are under way.
const IMAGES_A_MOMENT: usize = 6;

/// A file's life: each commit is one to three entries, now and then long ones. What was on the disk when the file got its
/// name, what happened since, and the entries.
fn life(dice: &mut Dice) -> (Vec<u8>, Vec<Event>, Vec<Frame>) {
    let disk = Disk::default();
    let db = Database::builder().create_with_backend(disk.clone()).unwrap();
    let mut frames = vec![frame(0, 2)];
    write(&db, &frames, frames[0].end()).unwrap();
    // It gets its name once its first entry is durable.
    let (start, before) = (disk.bytes(), disk.events().len());
    disk.note(Event::Asked(1));
    disk.note(Event::Confirmed(1));
    while frames.len() < 24 {
        let mut next = frames.last().unwrap().end();
        let group: Vec<Frame> = (0..1 + dice.below(3))
            .map(|_| {
                let records = if dice.below(6) == 0 { 2_000 } else { 1 + dice.below(20) as u64 };
                let made = frame(next, records);
                next = made.end();
                made
            })
            .collect();
        frames.extend(group.iter().cloned());
        disk.note(Event::Asked(frames.len()));
        write(&db, &group, next).unwrap();
        disk.note(Event::Confirmed(frames.len()));
    }
    drop(db);
    (start, disk.events().split_off(before), frames)
}

/// Opens the log in a directory. Gives it with its entries and what is told of them.
fn opened(dir: &Path, attempt: u64, how: &str) -> (LocalLog, u64, Vec<Frame>, Vec<String>) {
    let place = place(dir, None, attempt, Some(1)).0;
    let (log, found) = LocalLog::open(&dir.join("j/wal/it-0"), &place).unwrap_or_else(|e| panic!("{how}: {}", e.to_failure().message));
    let (mut read, mut damage) = (Vec::new(), Vec::new());
    for part in &found.parts {
        let contents = part.read().unwrap_or_else(|e| panic!("{how}: {}", e.to_failure().message));
        read.extend(contents.frames);
        damage.extend(contents.damage);
    }
    (log, found.end, read, damage)
}

/// Opens the image as the starts after the outage do. Gives how many entries more than the confirmed ones were found, and
/// whether anything was told to be damaged.
fn judge(bytes: &[u8], outage: &Outage, frames: &[Frame], dir: &Path, how: &str) -> (usize, bool) {
    let path = dir.join("j/wal/it-0").join(format!("{:020}-{:020}.redb", 0, 1));
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, bytes).unwrap();
    std::fs::write(path.with_file_name("opened"), "1").unwrap();
    let (mut log, end, mut read, damage) = opened(dir, 2, how);
    let (confirmed, asked) = (&frames[..outage.confirmed], &frames[..outage.asked]);
    assert!(read.starts_with(confirmed), "{how}: {} of {} confirmed entries, {damage:?}", read.len(), confirmed.len());
    // Of those under way any may have arrived, in their order and each once.
    let mut rest = asked[confirmed.len()..].iter();
    assert!(
        read[confirmed.len()..].iter().all(|entry| rest.any(|asked| asked == entry)),
        "{how}: {} entries of {}",
        read.len(),
        asked.len()
    );
    assert!(damage.is_empty() || outage.confirmed < outage.asked, "{how}: {damage:?}");
    assert_eq!(end, read.last().map_or(0, Frame::end), "{how}");
    assert!(std::fs::read(&path).unwrap() == bytes, "{how}: reading changed the file, so that the next start may find less");
    let more = read.len() - confirmed.len();
    // The next attempt writes on, and the one after it finds everything once.
    if end % 4 == 0 {
        read.push(frame(end, 3));
        log.append(&read[read.len() - 1..]).unwrap();
        drop(log);
        let (_log, end, again, _) = opened(dir, 3, how);
        assert!(again == read && end == read.last().unwrap().end(), "{how}: {} entries became {}", read.len(), again.len());
    }
    (more, !damage.is_empty())
}

/// WAL-1, WAL-3: whatever part of what was not synced arrived, a start finds every confirmed entry, each once and in order; of
/// those that were under way any may be there; nothing is told to be damaged where nothing was under way.
#[test]
fn no_outage_loses_a_confirmed_entry() {
    let mut dice = Dice::printed();
    let (mut images, mut more, mut told) = (0, 0, 0);
    while images < IMAGES_MIN {
        let (start, events, frames) = life(&mut dice);
        for outage in outages(start, &events) {
            let tries = if outage.open() == 0 { 1 } else { IMAGES_A_MOMENT };
            for _ in 0..tries {
                let (bytes, how) = outage.image(&mut dice);
                let dir = tempfile::tempdir().unwrap();
                let (under_way, damaged) = judge(&bytes, &outage, &frames, dir.path(), &how);
                images += 1;
                more += usize::from(under_way > 0);
                told += usize::from(damaged);
            }
        }
    }
    println!("{images} images, {more} with entries that were under way, {told} of which something was told");
    assert!(more > 20, "{more} of {images}");
}
