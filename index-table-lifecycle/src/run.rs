//! Runs a script: the parent of the process that performs the steps. It kills this process, and limits each step.

use std::{
    collections::BTreeMap,
    env,
    io::{BufRead, BufReader, Write},
    path::PathBuf,
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use crate::{
    reduce::kind,
    script::{Script, Step},
};

/// The time after which a step hangs.
pub(crate) const LIMIT: Duration = Duration::from_secs(90);

struct Process {
    child: Child,
    steps: ChildStdin,
    lines: Receiver<String>,
}

struct Running<'a> {
    script: &'a Script,
    dir: PathBuf,
    process: Option<Process>,
    acks: BTreeMap<u64, u64>,
    /// The steps that have not ended.
    begun: BTreeMap<u64, (String, Instant)>,
    count: u64,
    limit: Duration,
    is_loud: bool,
    is_ignored: &'a dyn Fn(&str) -> bool,
}

/// Runs a script. The error is the first failure whose kind is not ignored.
pub(crate) fn run(
    script: &Script,
    limit: Duration,
    is_loud: bool,
    is_ignored: &dyn Fn(&str) -> bool,
) -> Result<(), String> {
    let dir = index_table_proof::scratch().map_err(|error| error.to_string())?;
    let mut running = Running {
        script,
        dir: dir.path().to_owned(),
        process: None,
        acks: BTreeMap::new(),
        begun: BTreeMap::new(),
        count: 0,
        limit,
        is_loud,
        is_ignored,
    };
    let outcome = running.all();
    running.kill();
    outcome
}

impl Running<'_> {
    fn all(&mut self) -> Result<(), String> {
        for step in &self.script.steps {
            if self.is_loud {
                println!("  {step}");
            }
            self.step(step)?;
        }
        // Everything is still there after the store has been opened again.
        for step in ["wait", "check", "close", "end", "check", "close", "end"] {
            self.step(&Step::new(step))?;
        }
        Ok(())
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step.name() {
            "kill" => {
                let end = Instant::now() + Duration::from_millis(step.number(1));
                while self.process.is_some() && self.listen(end)? {}
                self.kill();
                return Ok(());
            }
            "wait" => return self.wait(),
            "end" => {
                self.wait()?;
                self.kill();
                return Ok(());
            }
            // These close the store, which the steps beside them use.
            "close" | "lose" | "rebuild" | "promote" => self.wait()?,
            "fork" if step.has("open") => self.wait()?,
            _ => {}
        }
        self.start()?;
        self.count += 1;
        let number = self.count;
        self.begun.insert(number, (step.to_string(), Instant::now()));
        self.send(&format!("{number} {step}"))?;
        if self.process.is_none() {
            self.begun.clear();
        }
        while !step.beside && self.begun.contains_key(&number) {
            self.listen(Instant::now() + self.limit)?;
        }
        Ok(())
    }

    /// Waits until all steps have ended.
    fn wait(&mut self) -> Result<(), String> {
        while !self.begun.is_empty() {
            self.listen(Instant::now() + self.limit)?;
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), String> {
        if self.process.is_some() {
            return Ok(());
        }
        let failed = |error: std::io::Error| format!("no process: {error}");
        let mut child = Command::new(env::current_exe().map_err(failed)?)
            .arg("child")
            .arg(&self.dir)
            .arg(self.script.config.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(failed)?;
        let (steps, output) = (child.stdin.take(), child.stdout.take());
        let (Some(steps), Some(output)) = (steps, output) else {
            return Err("no pipes".to_owned());
        };
        let (sender, lines) = channel();
        thread::spawn(move || {
            for line in BufReader::new(output).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        self.process = Some(Process { child, steps, lines });
        let acks: Vec<_> =
            self.acks.iter().map(|(tenant, n)| format!("0 ack {tenant} {n}")).collect();
        acks.iter().try_for_each(|line| self.send(line))
    }

    fn send(&mut self, line: &str) -> Result<(), String> {
        let Some(process) = &mut self.process else { return Ok(()) };
        let sent = writeln!(process.steps, "{line}").and_then(|()| process.steps.flush());
        if sent.is_err() {
            // The process has ended: its last lines have the reason.
            let end = Instant::now() + Duration::from_secs(5);
            while self.listen(end)? {}
        }
        Ok(())
    }

    /// Reads a line of the process. Returns false at the end of the time.
    fn listen(&mut self, until: Instant) -> Result<bool, String> {
        let hanging = self.begun.values().map(|(_, begun)| *begun + self.limit).min();
        let end = hanging.map_or(until, |hanging| until.min(hanging));
        let Some(process) = &mut self.process else { return Ok(false) };
        match process.lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => self.hear(&line).map(|()| true),
            Err(RecvTimeoutError::Timeout) => {
                if let Some((step, _)) = self.begun.values().find(|it| it.1.elapsed() >= self.limit)
                {
                    let all: Vec<_> = self.begun.values().map(|it| it.0.as_str()).collect();
                    let name = Step::new(step).name().to_owned();
                    return self
                        .end(format!("a hang: {name} does not end: `{step}` beside {all:?}"));
                }
                Ok(false)
            }
            Err(RecvTimeoutError::Disconnected)
                if self.begun.values().any(|(step, _)| Step::new(step).has("killed")) =>
            {
                self.kill();
                Ok(false)
            }
            Err(RecvTimeoutError::Disconnected) => {
                let status = process.child.wait().map_err(|error| error.to_string())?;
                self.end(format!("the process has ended: {status}"))
            }
        }
    }

    /// Ends the process after a failure. Another process continues if the failure is ignored.
    fn end(&mut self, failure: String) -> Result<bool, String> {
        if !(self.is_ignored)(&kind(&failure)) {
            return Err(failure);
        }
        self.kill();
        Ok(false)
    }

    fn hear(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split(' ');
        let word = words.next().unwrap_or_default();
        let mut number = || words.next().and_then(|it| it.parse::<u64>().ok()).unwrap_or_default();
        match word {
            "ack" => {
                let (tenant, n) = (number(), number());
                self.acks.insert(tenant, n);
            }
            "reset" => self.acks.clear(),
            "done" => {
                let step = self.begun.remove(&number());
                if let Some((step, begun)) = step.filter(|_| self.is_loud) {
                    println!("    {:.2?} {step}: {line}", begun.elapsed());
                }
            }
            "fault" => {
                let failure = line.trim_start_matches("fault ");
                if self.is_loud {
                    println!("    {failure}");
                }
                if !(self.is_ignored)(&kind(failure)) {
                    return Err(failure.to_owned());
                }
            }
            _ => return Err(format!("an unknown line: {line}")),
        }
        Ok(())
    }

    /// Kills the process, and reads its last lines: what it has acknowledged counts.
    fn kill(&mut self) {
        let Some(mut process) = self.process.take() else { return };
        let _ = process.child.kill();
        let _ = process.child.wait();
        while let Ok(line) = process.lines.recv_timeout(Duration::from_secs(5)) {
            if line.starts_with("ack ") || line == "reset" {
                let _ = self.hear(&line);
            }
        }
        self.begun.clear();
    }
}
