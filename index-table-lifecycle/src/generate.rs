//! Random scripts.

use crate::{
    random::Random,
    script::{Config, Script, Step, shard_name},
    tables::PLACED,
};

/// The steps and their weights.
const STEPS: [(&str, u64); 16] = [
    ("sleep", 5),
    ("check", 3),
    ("kill", 3),
    ("close", 1),
    ("wait", 2),
    ("backup", 3),
    ("build", 2),
    ("upgrade", 1),
    ("drain", 1),
    ("add-consumer", 3),
    ("remove-consumer", 2),
    ("share", 2),
    ("leave", 1),
    ("remove-old", 2),
    ("fork", 1),
    ("read-only", 1),
];

/// Further steps of a store with shards. A store with one data file is one from the first `add` on.
const OF_SHARDS: [(&str, u64); 12] = [
    ("lose", 1),
    ("restore-shard", 1),
    ("add", 3),
    ("remove", 3),
    ("detach", 3),
    ("attach", 3),
    ("move", 6),
    ("move-table", 3),
    ("resume", 2),
    ("cancel", 1),
    ("empty", 3),
    ("rebuild", 1),
];

/// Further steps of a store with an archive.
const OF_ARCHIVES: [(&str, u64); 4] =
    [("follow", 3), ("compare-follower", 3), ("promote", 1), ("restore-archive", 3)];

/// These take the longest, so they run beside the next steps more often.
const LONG: [&str; 6] = ["build", "move", "move-table", "empty", "backup", "resume"];

/// The consumers have these numbers, so some are added again, and some are not there.
const CONSUMERS: u64 = 4;

/// The shards that a script probably has.
struct Shards {
    present: Vec<String>,
    /// The steps that end what another step has begun: a lost shard is restored, a detached shard is attached, an interrupted
    /// move is resumed, and a worker leaves.
    due: Vec<&'static str>,
    next: u32,
}

/// Returns some of the shard maps and of the tables without one, or nothing for all.
fn some_maps(random: &mut Random) -> String {
    let maps = ["tenants", "tickets", "events", "people.email", "fillers.code"];
    let maps = maps.into_iter().chain(PLACED);
    let chosen: Vec<_> = maps
        .map(|map| if random.below(3) < 2 { format!(" {map}") } else { String::new() })
        .collect();
    if random.one_in(2) { String::new() } else { chosen.concat() }
}

/// The steps of one script.
struct Choice {
    steps: Vec<(&'static str, u64)>,
    /// The chance of a step to run beside the next steps, in tenths.
    beside: u64,
}

/// Returns the steps of a script with their weights. Half of the scripts repeat some steps, and leave out others. So each
/// combination of steps is frequent in some scripts, and a step that fails doesn't hide the failures of all others.
fn choice(random: &mut Random, config: &Config, without: &[String]) -> Choice {
    let mut steps = STEPS.to_vec();
    steps.extend(OF_SHARDS);
    if config.archive == 1 {
        steps.extend(OF_ARCHIVES);
    }
    steps.retain(|it| without.iter().all(|name| name != it.0));
    if random.one_in(2) {
        for step in &mut steps {
            step.1 *= [0, 1, 4][random.below(3) as usize % 3];
        }
    }
    Choice { steps, beside: [3, 6, 8][random.below(3) as usize % 3] }
}

/// Returns the script of a seed, without the steps of `without`.
pub(crate) fn script(seed: u64, without: &[String]) -> Script {
    let mut random = Random::new(&[seed, 8]);
    let config = Config {
        seed,
        tenants: 1 + random.below(6) as u32,
        fillers: [0, 20, 500, 500, 3000][random.below(5) as usize % 5],
        shards: if random.one_in(4) { 0 } else { 2 + random.below(3) as u32 },
        archive: random.below(2) as u32,
        writers: 1 + random.below(2) as u32,
        readers: random.below(3) as u32,
        workers: random.below(4).min(1) as u32,
        pause: [0, 0, 5, 20][random.below(4) as usize % 4],
    };
    let choice = choice(&mut random, &config, without);
    let mut shards = Shards {
        present: if config.shards == 0 {
            vec!["main".to_owned()]
        } else {
            (0..config.shards).map(shard_name).collect()
        },
        due: Vec::new(),
        next: config.shards,
    };
    let mut steps = Vec::new();
    while steps.len() < 30 {
        let text = step(&mut random, (&config, &choice), &mut shards);
        let chosen = text.iter().map(|text| Step::new(text));
        steps.extend(chosen.filter(|step| without.iter().all(|name| name != step.name())));
    }
    insert_later(&mut Random::new(&[seed, 10]), &mut steps, without);
    Script { config, steps }
}

/// Inserts steps that earlier versions of this program did not have. Without them, a seed has the script that it had.
fn insert_later(random: &mut Random, steps: &mut Vec<Step>, without: &[String]) {
    let is_chosen = |name: &str| without.iter().all(|it| it != name);
    for _ in 0..random.below(3) {
        let (at, beside) = (random.below(steps.len() as u64) as usize, random.one_in(2));
        let beside = if beside { "&" } else { "" };
        let field = ["close", "open online field", &format!("{beside}build")].map(Step::new);
        if is_chosen("field") && is_chosen("build") {
            steps.splice(at..at, field);
        }
    }
    if random.one_in(4) {
        let at = random.below(steps.len() as u64) as usize;
        let (seed, millis) = (random.below(1 << 32), 100 + random.below(600));
        let step = Step::new(&format!("releases {seed} {millis}"));
        if is_chosen("releases") {
            steps.insert(at, Step { beside: random.one_in(2), ..step });
        }
    }
}

fn step(
    random: &mut Random,
    (config, choice): (&Config, &Choice),
    shards: &mut Shards,
) -> Vec<String> {
    let steps = &choice.steps;
    let mut at = random.below(steps.iter().map(|it| it.1).sum());
    let name = steps.iter().find(|it| {
        let is_this = at < it.1;
        at = at.saturating_sub(it.1);
        is_this
    });
    let name = name.map_or("check", |it| it.0);
    let due = random.below(shards.due.len() as u64) as usize;
    let name =
        if !shards.due.is_empty() && random.one_in(4) { shards.due.remove(due) } else { name };
    let is_long = LONG.contains(&name) && random.one_in(2);
    let beside = if is_long || random.below(10) < choice.beside { "&" } else { "" };
    let one = |words: String| vec![format!("{beside}{words}")];
    let alone = |words: String| vec![words];
    match name {
        "sleep" => alone(format!("sleep {}", random.below(250))),
        "kill" => alone(format!("kill {}", random.below(150))),
        "check" | "close" | "wait" | "promote" | "rebuild" | "compare-follower" => {
            alone(name.to_owned())
        }
        "backup" | "resume" | "cancel" | "upgrade" | "drain" | "remove-old" | "leave" => {
            one(name.to_owned())
        }
        "attach" => one(if random.one_in(2) { "attach" } else { "attach alone" }.to_owned()),
        // A restoration is rare, and short. So few other kills would meet one.
        "restore-shard" if random.one_in(2) => {
            vec![format!("{beside}{name} killed {}", random.below(20_000)), name.to_owned()]
        }
        "restore-shard" => one(name.to_owned()),
        "fork" => match random.below(3) {
            0 => one("fork".to_owned()),
            1 => one("fork end".to_owned()),
            _ => alone("fork open".to_owned()),
        },
        "lose" => {
            shards.due.push("restore-shard");
            let shard = random.pick(shards.present.clone()).unwrap_or_default();
            vec!["backup".to_owned(), format!("lose {shard}")]
        }
        "add" => {
            let shard = shard_name(shards.next);
            shards.next += 1;
            shards.present.push(shard.clone());
            one(format!("add {shard}"))
        }
        // They are refused if the shard has rows, or rows of some tables.
        "remove" | "detach" => {
            if name == "detach" {
                shards.due.push("attach");
            }
            let shard = random.pick(shards.present.clone()).unwrap_or_default();
            let prepared = if random.one_in(3) { "" } else { " prepared" };
            let step = format!("{beside}{name} {shard}{prepared}");
            // A shard keeps rows when it is detached, and not when it is removed.
            let is_emptied = random.one_in(if name == "remove" { 1 } else { 3 });
            let empty = is_emptied.then(|| format!("empty {shard}{}", some_maps(random)));
            empty.into_iter().chain([step]).collect()
        }
        "move" => {
            let to = random.pick(shards.present.clone()).unwrap_or_default();
            let map = random.pick([
                "tenants",
                "tenants",
                "tickets",
                "events",
                "people.email",
                "fillers.code",
            ]);
            let map = map.unwrap_or("tenants");
            let end = if map.starts_with('t') { config.tenants.into() } else { 4096 };
            let (a, b) = (random.below(end), random.below(end));
            let how = how_to_move(random, shards);
            one(format!("move {map} {to} {} {}{how}", a.min(b), a.max(b)))
        }
        "move-table" => {
            let to = random.pick(shards.present.clone()).unwrap_or_default();
            let table = random.pick(PLACED).unwrap_or_default();
            one(format!("{name} {table} {to}{}", how_to_move(random, shards)))
        }
        "empty" => {
            let shard = random.pick(shards.present.clone()).unwrap_or_default();
            one(format!("empty {shard}{}", some_maps(random)))
        }
        "build" => {
            vec!["close".to_owned(), "open online".to_owned(), format!("{beside}build")]
        }
        "add-consumer" | "remove-consumer" | "share" => one(of_consumer(random, name, shards)),
        "follow" => vec![format!("&follow {}", random.below(1500))],
        "restore-archive" => {
            if random.one_in(2) {
                alone(format!("{name} paused"))
            } else {
                one(name.to_owned())
            }
        }
        _ => vec![format!("&read-only {}", random.below(1500))],
    }
}

/// Returns the last words of a move. An interrupted move is resumed or cancelled later.
fn how_to_move(random: &mut Random, shards: &mut Shards) -> &'static str {
    let how = random.pick(["", "", "", " offline", " interrupted", " offline interrupted"]);
    let how = how.unwrap_or_default();
    if how.ends_with("interrupted") {
        shards.due.push(if random.one_in(2) { "resume" } else { "cancel" });
    }
    how
}

/// Returns a step of a consumer.
fn of_consumer(random: &mut Random, name: &str, shards: &mut Shards) -> String {
    let number = random.below(CONSUMERS);
    match name {
        "add-consumer" => {
            let shared = if number == 3 { " shared" } else { "" };
            let all = if random.one_in(2) { " all" } else { "" };
            format!("{name} c{number}{shared}{all}{}", killed(random, 5))
        }
        "remove-consumer" => format!("{name} c{number}{}", killed(random, 3)),
        "share" => {
            shards.due.push("leave");
            format!("{name} c{number}")
        }
        _ => format!("{name} c{number}"),
    }
}

/// Returns the words that kill the process at one of the moments of a step, or nothing.
fn killed(random: &mut Random, moments: u64) -> String {
    if random.one_in(6) { format!(" killed {}", 1 + random.below(moments)) } else { String::new() }
}
