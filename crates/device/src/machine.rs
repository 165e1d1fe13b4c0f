//! How much of the machine's memory is available: what is free now, or what the control groups of
//! this process may still use, whichever is less.

/// Bytes that are free, or that the kernel could free at once. `None` if it does not say.
pub fn available_bytes() -> Option<u64> {
    available(&|path| std::fs::read_to_string(path).ok())
}

/// Bytes that the machine has, in use or not. `None` if the kernel does not say.
pub fn total_bytes() -> Option<u64> {
    meminfo_bytes(&std::fs::read_to_string("/proc/meminfo").ok()?, "MemTotal:")
}

/// The default share of the available memory for a device whose memory is the machine's own. The rest
/// is for pages and for the machine: the jobs' processes, the service, and everything else there.
pub(crate) fn device_bytes(available: u64) -> u64 {
    available / 4 * 3
}

/// The default share of the available memory for pages. Beside a device whose memory is the machine's
/// own, an eighth is left over.
pub fn page_bytes(available: u64, device_on_host: Option<u64>) -> u64 {
    let half = available / 2;
    match device_on_host {
        None => half,
        Some(device) => (available / 8 * 7)
            .saturating_sub(device)
            .clamp(available / 8, half),
    }
}

type Read<'a> = dyn Fn(&str) -> Option<String> + 'a;

fn available(read: &Read<'_>) -> Option<u64> {
    let machine = meminfo_bytes(&read("/proc/meminfo")?, "MemAvailable:")?;
    let groups = read("/proc/self/cgroup").unwrap_or_default();
    let left = groups
        .lines()
        .flat_map(|line| left_in_groups(line, read))
        .min();
    Some(machine.min(left.unwrap_or(u64::MAX)))
}

fn meminfo_bytes(meminfo: &str, key: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix(key))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// Where a kind of control groups is mounted, and what its files are called.
struct Kind {
    root: &'static str,
    /// The smallest of them applies.
    limits: &'static [&'static str],
    used: &'static str,
    /// In `memory.stat`: cached pages of files, which count as used but can be freed at once.
    cached: &'static str,
}

const ONE: Kind = Kind {
    root: "/sys/fs/cgroup/memory",
    limits: &["memory.limit_in_bytes"],
    used: "memory.usage_in_bytes",
    cached: "total_inactive_file ",
};
const TWO: Kind = Kind {
    root: "/sys/fs/cgroup",
    limits: &["memory.max", "memory.high"],
    used: "memory.current",
    cached: "inactive_file ",
};

/// What is left in the group of this line of `/proc/self/cgroup`, and in each that it is part of:
/// `4:memory:/docker/1f2e`, or `0::/user.slice` of version 2. In a container the groups outside are
/// not seen, and its own may be at the root.
fn left_in_groups(line: &str, read: &Read<'_>) -> Vec<u64> {
    let mut fields = line.splitn(3, ':').skip(1);
    let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else {
        return Vec::new();
    };
    let kind = match controllers {
        "" => &TWO,
        named if named.split(',').any(|name| name == "memory") => &ONE,
        _ => return Vec::new(),
    };
    let mut directory = format!("{}{}", kind.root, path.trim_end_matches('/'));
    let mut left = Vec::new();
    loop {
        left.extend(left_in_group(kind, &directory, read));
        if directory.len() <= kind.root.len() {
            return left;
        }
        directory.truncate(directory.rfind('/').unwrap_or(0));
    }
}

fn left_in_group(kind: &Kind, directory: &str, read: &Read<'_>) -> Option<u64> {
    let text = |file: &str| read(&format!("{directory}/{file}"));
    let number = |file: &str| text(file)?.trim().parse::<u64>().ok();
    // "max" is not a number: there is no limit.
    let limit = kind.limits.iter().filter_map(|file| number(file)).min()?;
    let used = number(kind.used)?;
    let stat = text("memory.stat").unwrap_or_default();
    let cached = stat.lines().find_map(|line| line.strip_prefix(kind.cached));
    let cached: u64 = cached.and_then(|n| n.trim().parse().ok()).unwrap_or(0);
    Some(limit.saturating_sub(used.saturating_sub(cached)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    /// As a machine of 24 GiB shows it.
    const MEMINFO: &str = "MemTotal:       24682416 kB\nMemFree:         9103612 kB\n\
                           MemAvailable:   20480000 kB\nBuffers:          402520 kB\n";

    /// What is available on a machine with these files.
    fn with(files: &[(&str, &str)]) -> Option<u64> {
        available(&|path| {
            let found = files.iter().find(|(name, _)| *name == path);
            found.map(|(_, text)| (*text).to_owned())
        })
    }

    #[test]
    fn without_groups_it_is_what_the_machine_has_left() {
        assert_eq!(with(&[("/proc/meminfo", MEMINFO)]), Some(20_000 * MIB));
        assert_eq!(with(&[("/proc/meminfo", "MemTotal: 1 kB\n")]), None);
        assert_eq!(with(&[]), None);
        assert!(available_bytes().is_some_and(|bytes| bytes > 0));
    }

    #[test]
    fn version_2_in_a_container_and_outside() {
        let container = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "4294967296\n"),
            ("/sys/fs/cgroup/memory.current", "1610612736\n"),
            (
                "/sys/fs/cgroup/memory.stat",
                "anon 1073741824\nfile 536870912\ninactive_file 524288000\n",
            ),
        ];
        assert_eq!(with(&container), Some((4096 - 1536 + 500) * MIB));
        let slice = [
            ("/proc/meminfo", MEMINFO),
            (
                "/proc/self/cgroup",
                "0::/user.slice/user-1000.slice/a.scope\n",
            ),
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice/a.scope/memory.max",
                "max\n",
            ),
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice/a.scope/memory.high",
                "max\n",
            ),
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice/a.scope/memory.current",
                "4096\n",
            ),
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice/memory.max",
                "max\n",
            ),
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice/memory.high",
                "1073741824\n",
            ),
            (
                "/sys/fs/cgroup/user.slice/user-1000.slice/memory.current",
                "104857600\n",
            ),
        ];
        assert_eq!(
            with(&slice),
            Some((1024 - 100) * MIB),
            "that of the slice above"
        );
    }

    #[test]
    fn version_1_in_a_container_and_outside() {
        let lines = "9:name=systemd:/\n4:cpu,memory:/docker/1f2e\n1:cpu:/\n";
        // The container's own group is at the root; the path is that of the host.
        let container = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", lines),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "2147483648\n",
            ),
            (
                "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                "1073741824\n",
            ),
            (
                "/sys/fs/cgroup/memory/memory.stat",
                "cache 1\ntotal_inactive_file 104857600\n",
            ),
        ];
        assert_eq!(with(&container), Some((2048 - 1024 + 100) * MIB));
        let unlimited = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", lines),
            (
                "/sys/fs/cgroup/memory/memory.limit_in_bytes",
                "9223372036854771712\n",
            ),
            (
                "/sys/fs/cgroup/memory/memory.usage_in_bytes",
                "1073741824\n",
            ),
        ];
        assert_eq!(with(&unlimited), Some(20_000 * MIB));
    }

    #[test]
    fn more_in_use_than_the_limit_leaves_nothing() {
        let full = [
            ("/proc/meminfo", MEMINFO),
            ("/proc/self/cgroup", "0::/\n"),
            ("/sys/fs/cgroup/memory.max", "1048576\n"),
            ("/sys/fs/cgroup/memory.current", "2097152\n"),
        ];
        assert_eq!(with(&full), Some(0));
    }

    #[test]
    fn a_device_in_the_machines_memory_and_its_pages_leave_an_eighth() {
        let available = 16 << 30;
        let device = device_bytes(available);
        assert_eq!(device, 12 << 30);
        assert_eq!(page_bytes(available, Some(device)), 2 << 30);
        assert_eq!(
            page_bytes(available, Some(1 << 30)),
            8 << 30,
            "half, and no more"
        );
        assert_eq!(page_bytes(available, Some(10 << 30)), 4 << 30);
        assert_eq!(
            page_bytes(available, Some(64 << 30)),
            2 << 30,
            "that much in any case"
        );
        assert_eq!(page_bytes(available, None), 8 << 30);
    }
}
