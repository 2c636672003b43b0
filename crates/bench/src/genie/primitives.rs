//! Table 6 for both sizes of pages, in a process of one thread and in one of which a second thread runs: what takes rights away then interrupts
//! the other processor.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use shunt_buffers::calibrate;
use shunt_buffers::region::Pages;

use super::model::Fit;
use super::pin;

/// For each kind of pages and number of threads.
pub type Tables = BTreeMap<String, BTreeMap<String, Fit>>;

const KINDS: [(&str, Pages, bool); 4] = [
    ("4 KiB", Pages::Small, false),
    ("4 KiB, 2 threads", Pages::Small, true),
    ("2 MiB", Pages::Huge, false),
    ("2 MiB, 2 threads", Pages::Huge, true),
];

/// Does `work`, beside a thread of this process that runs on `core` if `second`.
pub fn beside<T>(second: bool, core: usize, work: impl FnOnce() -> T) -> T {
    let over = AtomicBool::new(!second);
    let runs = AtomicBool::new(!second);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            pin(core);
            while !over.load(Ordering::Relaxed) {
                runs.store(true, Ordering::Relaxed);
                std::hint::spin_loop();
            }
        });
        while !runs.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let done = work();
        over.store(true, Ordering::Relaxed);
        done
    })
}

/// All tables that this machine has the pages for.
pub fn measure(cores: (usize, usize), each: Duration) -> Tables {
    pin(cores.0);
    let kinds = KINDS.into_iter().filter_map(|(name, pages, second)| {
        let table = beside(second, cores.1, || calibrate::table(pages, usize::MAX, each)).ok()?;
        let lines = table.into_iter().filter(|one| !one.points.is_empty());
        let fits = lines.map(|one| (one.name.to_owned(), Fit::of(&one.points)));
        Some((name.to_owned(), fits.collect()))
    });
    kinds.collect()
}

pub fn write(text: &mut String, tables: &Tables) -> fmt::Result {
    writeln!(
        text,
        "\nTable 6 by pages and threads: us + us for 4 KiB (r2), least squares over 64 KiB to 4 MiB, of huge pages 2 to 8 MiB; a second thread runs on the other processor"
    )?;
    write!(text, "{:<24}", "")?;
    let kinds: Vec<_> = KINDS.iter().filter_map(|kind| tables.get(kind.0).map(|table| (kind.0, table))).collect();
    for (name, _) in &kinds {
        write!(text, "{name:>30}")?;
    }
    writeln!(text)?;
    for name in kinds.first().map(|kind| kind.1.keys()).into_iter().flatten() {
        write!(text, "{name:<24}")?;
        for (_, table) in &kinds {
            let cell = table
                .get(name)
                .map_or("-".into(), |fit| format!("{:.2} + {:.4} ({:.2})", fit.fixed / 1e3, fit.each * 4.096, fit.r2));
            write!(text, "{cell:>30}")?;
        }
        writeln!(text)?;
    }
    Ok(())
}
