"""Allowed settings: what a stack, or the command line of a guest's kernel, may change. All others are refused.

Not allowed are settings that run programs, stop the machine, endanger other data (`queue/write_cache`) or disable
measurements (`queue/iostats`).
"""

from __future__ import annotations

import difflib
import re


def _names(text: str) -> frozenset[str]:
    return frozenset(text.split())


#: In a request queue: ``queue/NAME`` and ``top/NAME`` (Documentation/ABI/stable/sysfs-block).
QUEUE = _names(
    "add_random discard_max_bytes io_poll io_poll_delay max_sectors_kb nomerges nr_requests read_ahead_kb rotational "
    "rq_affinity scheduler wbt_lat_usec"
)
#: For all CPUs: ``cpu/NAME`` (Documentation/admin-guide/pm/cpufreq.rst).
CPU = _names("energy_performance_preference scaling_governor scaling_max_freq scaling_min_freq")
#: ``vm.NAME`` and ``fs.NAME`` (Documentation/admin-guide/sysctl).
SYSCTLS = _names(
    "vm.compaction_proactiveness vm.dirty_background_bytes vm.dirty_background_ratio vm.dirty_bytes "
    "vm.dirty_expire_centisecs vm.dirty_ratio vm.dirty_writeback_centisecs vm.dirtytime_expire_seconds vm.laptop_mode "
    "vm.page-cluster vm.swappiness vm.vfs_cache_pressure vm.zone_reclaim_mode fs.aio-max-nr fs.fuse.max_pages_limit "
    "fs.pipe-max-size fs.xfs.filestream_centisecs fs.xfs.rotorstep fs.xfs.speculative_prealloc_lifetime "
    "fs.xfs.xfssyncd_centisecs"
)
#: ``MODULE/PARAMETER`` that can be written while the module is in use.
PARAMETERS = {
    "dm_bufio": _names("max_age_seconds max_cache_size_bytes retain_bytes"),
    "dm_crypt": _names("max_read_size max_write_size"),
    "dm_mod": _names("dm_numa_node reserved_bio_based_ios reserved_rq_based_ios swap_bios"),
    "dm_verity": _names("prefetch_cluster use_bh_bytes"),
    "fuse": _names("enable_uring max_user_bgreq max_user_congthresh"),
    "nvme_core": _names("iopolicy"),
    "overlay": _names("index metacopy nfs_export redirect_always_follow redirect_dir redirect_max xino_auto"),
    "zfs": _names(
        "zfs_abd_scatter_enabled zfs_arc_max zfs_arc_meta_balance zfs_arc_min zfs_compressed_arc_enabled "
        "zfs_dirty_data_max zfs_prefetch_disable zfs_txg_timeout zfs_vdev_aggregation_limit "
        "zfs_vdev_async_read_max_active zfs_vdev_async_write_max_active zfs_vdev_max_active "
        "zfs_vdev_sync_read_max_active zfs_vdev_sync_write_max_active zil_slog_bulk"
    ),
    "zswap": _names("accept_threshold_percent compressor enabled max_pool_percent shrinker_enabled"),
}
_SPACES = {"queue": QUEUE, "top": QUEUE, "cpu": CPU, **PARAMETERS}
#: Words of a kernel's command line, without their values (Documentation/admin-guide/kernel-parameters.txt).
BOOT = _names(
    "amd_iommu amd_pstate apparmor audit cgroup_disable default_hugepagesz hugepages hugepagesz idle init_on_alloc "
    "init_on_free intel_idle.max_cstate intel_iommu intel_pstate iommu iommu.passthrough iommu.strict isolcpus "
    "kfence.sample_interval l1tf lsm maxcpus mds mitigations mmio_stale_data nohz nohz_full noibpb noibrs nokaslr "
    "nopti nosmt nospectre_v1 nospectre_v2 numa_balancing page_alloc.shuffle preempt processor.max_cstate psi pti "
    "randomize_kstack_offset rcu_nocbs retbleed selinux slab_nomerge slub_debug spec_store_bypass_disable spectre_bhi "
    "spectre_v2 srbds threadirqs transparent_hugepage tsx tsx_async_abort workqueue.default_affinity_scope "
    "workqueue.power_efficient"
)
#: Modules whose parameters are allowed on a guest's command line, including parameters that are read only at boot.
BOOT_MODULES = frozenset(PARAMETERS) | _names(
    "bcache brd btrfs dm_integrity dm_thin_pool ext4 f2fs jbd2 loop md_mod null_blk nvme raid456 scsi_mod virtio_blk "
    "xfs"
)

FORMS = "queue/NAME, top/NAME, cpu/NAME, vm.NAME, fs.NAME, MODULE/PARAMETER"


def why_refused(key: str) -> str | None:
    """Return why a stack must not have a setting, or None if it is allowed."""
    space, slash, _ = key.partition("/")
    if slash:
        keys = sorted(f"{space}/{name}" for name in _SPACES.get(space, ()))
    else:
        keys = sorted(SYSCTLS) if key.startswith(("vm.", "fs.")) else []
    if key in keys:
        return None
    if not keys:
        return f"{key!r} is not a setting that a stack may change; keys are {FORMS} (of {', '.join(PARAMETERS)})"
    near = difflib.get_close_matches(key, keys, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(keys)}"
    return f"{key!r} is not a setting that a stack may change; {hint}"


def why_no_boot_word(word: str) -> str | None:
    """Return why a word must not be on the command line of a guest's kernel, or None if it is allowed."""
    key = word.partition("=")[0]
    module, dot, parameter = key.partition(".")
    if not re.fullmatch(r"[\w.-]+(=[\w.,:+*/-]+)?", word, re.ASCII):
        return f"{word!r} is not NAME or NAME=VALUE of letters, digits and ._,:+*/-"
    if key in BOOT or (dot and parameter and module in BOOT_MODULES):
        return None
    near = difflib.get_close_matches(key, BOOT, n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(sorted(BOOT))}, and MODULE.PARAMETER"
    return f"{key!r} is not a word that a guest's kernel may be given; {hint}"
