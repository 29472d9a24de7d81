//! The built program in a container, with the limits of `compose.yaml`: process id 1, another user, a root that is read-only and has
//! only the libraries of the system, a volume, little shared memory and little memory.
//!
//! Namespaces and mounts make the container, so no image and no other program is needed. Without the privileges for them, a test ends
//! without a result, unless it has to run; see `support/privileges.rs`.

use std::{
    fs,
    os::unix::fs::{PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::{Command, Stdio},
    thread,
    time::Duration,
};

use serde_json::{Value, json};

use crate::server::{Client, Result, Server};

#[path = "../../../../tests/support/privileges.rs"]
mod privileges;

const COMPOSE: &str = include_str!("../../compose.yaml");

/// Makes the root of the container in the directory `$1`, with the volume `$2`, `$4` bytes of shared memory, and the program `$5`, and
/// runs that as the user `$3`.
const ENTER: &str = r#"
set -e
root=$1 volume=$2 user=$3 shm=$4 program=$5
mount --make-rprivate /
mount -t tmpfs -o size=1m tmpfs "$root"
for part in bin lib lib64 usr; do
  if [ -L "/$part" ]; then
    cp -P "/$part" "$root/$part"
  elif [ -d "/$part" ]; then
    mkdir "$root/$part"
    mount --bind "/$part" "$root/$part"
    mount -o remount,bind,ro "$root/$part"
  fi
done
mkdir -p "$root/data" "$root/proc" "$root/dev/shm"
touch "$root/service"
mount --bind "$program" "$root/service"
mount --bind "$volume" "$root/data"
mount -t proc proc "$root/proc"
mount -t tmpfs -o "size=$shm" tmpfs "$root/dev/shm"
mount -o remount,ro "$root"
exec chroot --userspec="$user" "$root" /service /data 127.0.0.1:0
"#;

/// Returns a value of `compose.yaml`.
fn setting(name: &str) -> Result<&'static str> {
    let line = COMPOSE.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "));
    Ok(line.ok_or("no such setting")?.trim_matches('"'))
}

struct Container {
    root: tempfile::TempDir,
    volume: PathBuf,
    /// The directory of a group that limits the memory.
    group: Option<PathBuf>,
}

impl Container {
    /// Makes a container whose volume has this owner; `None` if this process can't make containers.
    fn new(owner: u32) -> Result<Option<Self>> {
        let mut unshare = Command::new("unshare");
        unshare.args(["--mount", "--pid", "--fork", "mount", "--make-rprivate", "/"]);
        if !unshare.stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
            privileges::not_privileged("this process can't make a mount namespace")
                .map_err(|error| error.to_string())?;
            return Ok(None);
        }
        let root = tempfile::tempdir()?;
        let volume = root.path().join("volume");
        fs::create_dir_all(root.path().join("root"))?;
        fs::create_dir(&volume)?;
        fs::set_permissions(&volume, fs::Permissions::from_mode(0o700))?;
        chown(&volume, Some(owner), Some(owner))?;
        Ok(Some(Self { root, volume, group: None }))
    }

    fn command(&self) -> Result<Command> {
        let join = self.group.as_ref().map(|group| group.join("cgroup.procs"));
        let join = join.map_or(String::new(), |file| format!("echo $$ >'{}'\n", file.display()));
        let mut command = Command::new("unshare");
        command
            .args(["--mount", "--pid", "--fork", "--kill-child", "sh", "-c"])
            .args([format!("{join}{ENTER}"), "sh".to_owned()])
            .args([&self.root.path().join("root"), &self.volume])
            .args([setting("user")?, setting("shm_size")?])
            .arg(env!("CARGO_BIN_EXE_index-table-service-example"));
        Ok(command)
    }

    fn start(&self) -> Result<Running> {
        let server = Server::run_command(self.command()?)?;
        let program = child_of(server.id())?;
        Ok(Running { server, program })
    }
}

/// A container that runs the program.
struct Running {
    server: Server,
    /// The process id of the program outside of the container.
    program: u32,
}

impl Running {
    /// Kills the program, which outlives the process that has started it, because it has changed its user.
    fn kill(&mut self) -> Result {
        // It may have ended already.
        let mut kill = Command::new("kill");
        kill.args(["-KILL", &self.program.to_string()]).stderr(Stdio::null()).status()?;
        self.server.kill()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.kill();
    }
}

/// Returns the only child of a process: the program, whose id is another one in its namespace.
fn child_of(process: u32) -> Result<u32> {
    let children = fs::read_to_string(format!("/proc/{process}/task/{process}/children"))?;
    Ok(children.trim().parse()?)
}

/// Creates customers. Each takes about 12 KB of the file.
fn create(client: &Client, ids: impl Iterator<Item = u64>) -> Result {
    for id in ids {
        let customer = json!({
            "id": id, "first_name": "Ann", "last_name": "x".repeat(300), "town": "Redmond",
            "phone": "5".repeat(12_000), "email": format!("{id}@example.com"),
        });
        let (status, body) = client.post("/customers", &customer)?;
        assert_eq!(status, 201, "{body}");
    }
    Ok(())
}

fn owner() -> Result<u32> {
    Ok(setting("user")?.split(':').next().ok_or("no user")?.parse()?)
}

#[test]
fn it_runs_with_the_settings_of_the_compose_file() -> Result {
    for required in ["read_only: true", "cap_drop: [ALL]", "stop_grace_period: 15s"] {
        assert!(COMPOSE.contains(required), "{required}");
    }
    let Some(container) = Container::new(owner()?)? else { return Ok(()) };
    let mut first = container.start()?;
    create(&first.server.client, 0..3)?;
    let program = first.program;
    let status = fs::read_to_string(format!("/proc/{program}/status"))?;
    assert!(status.contains(&format!("NSpid:\t{program}\t1\n")), "{status}");
    assert!(status.contains(&format!("Uid:\t{0}\t{0}\t{0}\t{0}\n", owner()?)), "{status}");

    // The next process has the same id, after a kill and after a stop.
    first.kill()?;
    let mut second = container.start()?;
    create(&second.server.client, 3..6)?;
    assert!(second.server.terminate_by(second.program)?.success());
    let third = container.start()?;
    for id in 0..6 {
        assert_eq!(third.server.client.get(&format!("/customers/{id}"))?.0, 200, "customer {id}");
    }
    Ok(())
}

#[test]
fn two_containers_with_one_volume_are_refused() -> Result {
    let Some(container) = Container::new(owner()?)? else { return Ok(()) };
    let first = container.start()?;
    let second = container.command()?.output()?;
    let said = String::from_utf8_lossy(&second.stderr);
    assert!(!second.status.success() && said.contains("another pid namespace"), "{said}");
    create(&first.server.client, 0..1)
}

#[test]
fn a_volume_of_another_user_is_named() -> Result {
    let Some(container) = Container::new(0)? else { return Ok(()) };
    let refused = container.command()?.output()?;
    let said = String::from_utf8_lossy(&refused.stderr);
    let is_named =
        said.contains("`/data` can't be written to") && said.contains("Permission denied");
    assert!(!refused.status.success() && is_named, "{said}");
    Ok(())
}

/// Returns the directory of a new group of processes with this limit of their memory; `None` if this process can't make groups.
fn limited_group(bytes: &str) -> Option<(PathBuf, &'static str)> {
    let name = format!("index-table-{}", std::process::id());
    let groups = [
        ("/sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.max_usage_in_bytes"),
        ("/sys/fs/cgroup", "memory.max", "memory.peak"),
    ];
    groups.into_iter().find_map(|(parent, limit, peak)| {
        let group = Path::new(parent).join(&name);
        fs::create_dir(&group).ok()?;
        if fs::write(group.join(limit), bytes).is_ok() && group.join(peak).exists() {
            return Some((group, peak));
        }
        let _ = fs::remove_dir(group);
        None
    })
}

/// The map of 1 TiB does not count. The pages of the file count while they are in memory, and the system takes them back.
#[test]
#[ignore = "needs an optimized program: `cargo test --release -p index-table-service-example --test service -- --ignored`"]
fn a_store_can_be_larger_than_the_limit_of_memory() -> Result {
    const CUSTOMERS: u64 = 8000;
    let Some(mut container) = Container::new(owner()?)? else { return Ok(()) };
    let limit = setting("mem_limit")?;
    let Some((group, peak)) = limited_group(&limit.replace('m', "M")) else {
        eprintln!("not run: this process can't limit the memory of a group of processes");
        return Ok(());
    };
    container.group = Some(group.clone());
    let limit: u64 = limit.trim_end_matches('m').parse::<u64>()? << 20;
    let running = container.start()?;
    thread::scope(|scope| {
        let client = &running.server.client;
        let create = |first| move || create(client, (first..CUSTOMERS).step_by(4));
        let threads = [0, 1, 2, 3].map(|first| scope.spawn(create(first)));
        threads.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a panic")?)
    })?;
    for id in (0..CUSTOMERS).step_by(7) {
        let (status, customer) = running.server.client.get(&format!("/customers/{id}"))?;
        assert_eq!((status, &customer["id"]), (200, &Value::from(id)));
    }
    let used: u64 = fs::read_to_string(group.join(peak))?.trim().parse()?;
    let size = fs::metadata(container.volume.join("data.mdb"))?.len();
    assert!(used <= limit && size > limit, "{used} bytes of memory for a file of {size} bytes");
    drop(running);
    // Its processes end a moment later.
    for _ in 0..500 {
        if fs::remove_dir(&group).is_ok() {
            return Ok(());
        }
        thread::sleep(Duration::from_millis(10));
    }
    Err("the group can't be removed".into())
}
