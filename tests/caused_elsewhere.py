"""Which tests cause the errors of docs/errors.md that need root, a device or a session, and how the messages begin."""

_TESTS = {
    "tests/plugin/test_beside_xdist.py": {
        "test_a_gate_is_refused_before_anything_starts": ["--fsstack-…: nothing"],
    },
    "tests/plugin/test_command.py": {
        "test_a_report_that_would_go_nowhere_is_refused": ["report: --…:"],
        "test_a_table_whose_plugin_is_gone_fails_its_report_only": ["there is no table …;", "there is no table …:"],
        "test_new_overwrites_nothing": ["new: … is there"],
        "test_several_runs_stand_side_by_side": ["report: --json: takes", "report: several files"],
        "test_the_doctor_and_the_cleanup_are_those_of_pytest": ["--fsstack-doctor=install: no"],
        "test_wrong_usage_is_a_sentence_and_exit_code_4": [
            "there is no command",
            "run: name a study",
            "stacks explain:",
            "new: there is a layer",
            "new: there is a workload",
        ],
    },
    "tests/plugin/test_control.py": {
        "test_its_name_is_taken": ["--fsstack-control: a"],
    },
    "tests/plugin/test_first_hour.py": {
        "test_a_mistake_in_a_marker_is_one_line": ["it takes one"],
        "test_a_stack_that_cannot_be_built_says_it_once": ["could not build"],
    },
    "tests/plugin/test_gate.py": {
        "test_a_budget_whose_baseline_this_machine_lacks_is_skipped_and_counted": ["its budget has"],
        "test_a_budget_whose_baseline_was_not_collected_is_refused": ["it has a budget"],
        "test_a_pattern_that_matches_no_stack_is_refused_with_the_nearest_name": ["no stack is called"],
    },
    "tests/plugin/test_good_citizen.py": {
        "test_a_test_without_stacks_is_an_error_of_this_test_alone": ["uses fsstack,"],
        "test_who_cannot_be_given_a_stack_is_told_so_in_a_sentence": ["got no stack,"],
    },
    "tests/plugin/test_kernels.py": {
        "test_mistakes_are_told": ["two kernels are", "--fsstack-kernel needs"],
    },
    "tests/plugin/test_options.py": {
        "test_a_mistake_on_the_command_line_is_one_message_and_exit_code_4": [
            "it is for block",
            "--fsstack-overwrite=… names",
            "--fsstack-report: …",
            "the baseline",
        ],
        "test_missing_stacks_are_skipped_with_the_way_to_get_them": ["… (--fsstack-missing=fail)"],
        "test_overwrite_is_only_heard_on_the_command_line_itself": ["--fsstack-overwrite=… must"],
        "test_rules_by_which_rounds_are_discarded_are_checked_first": ["this machine"],
        "test_sizes_that_cannot_fit_the_device_are_refused_before_anything_starts": ["at --fsstack-scale=…"],
    },
    "tests/plugin/test_options_in_inis.py": {
        "test_a_mistake_in_an_ini_is_one_line_that_names_the_ini": ["…: …; write true"],
    },
    "tests/plugin/test_over_time.py": {
        "test_what_makes_it_meaningless_fails_the_session_unless_it_is_wanted_anyway": ["…: the scale"],
        "test_what_measured_nothing_is_not_added_and_fails": ["nothing added", "nothing was measured"],
    },
    "tests/plugin/test_repetitions.py": {
        "test_a_mark_on_a_test_that_does_not_measure_is_refused": ["it is for tests"],
        "test_a_repeated_step_that_writes_is_an_error_that_names_it": ["… writes to the"],
        "test_a_wrong_number_is_refused_before_anything_runs": ["it takes a number"],
    },
    "tests/plugin/test_report_targets.py": {
        "test_a_picture_that_nothing_can_draw_is_refused_before_the_first_round": ["pictures need"],
        "test_a_target_that_is_lost_on_the_way_does_not_hide_the_tables": ["not written: …"],
    },
    "tests/plugin/test_rounds.py": {
        "test_a_benchmark_that_measures_nothing_fails": ["this test …,"],
        "test_a_machine_that_is_always_busy_ends_the_chain_after_as_many_rounds_as_planned": ["inconclusive: no"],
    },
    "tests/plugin/test_two_versions.py": {
        "test_paths_that_give_the_same_id_are_refused_until_one_has_a_name": ["two stacks are"],
    },
    "tests/plugin/test_verdicts.py": {
        "test_a_stack_that_did_not_do_the_work_is_shown_but_never_compared": ["… on … did not"],
        "test_an_unknown_metric_fails_and_names_those_there_are": ["… has no metric"],
        "test_strict_fails_what_is_undecided": ["… on …: … (--fsstack-strict)"],
    },
    "tests/real/layers/test_layers.py": {
        "test_a_directory_that_cannot_encrypt_files_is_told_with_what_to_write": ["… is on … that"],
    },
    "tests/real/machine/test_foreign_contents.py": {
        "test_foreign_contents_are_refused": ["…; `--fsstack-overwrite=…`"],
    },
    "tests/real/machine/test_guard.py": {
        "test_a_label_copied_to_a_bigger_device_is_not_ours": ["it carries the scratch label of"],
        "test_partition_table": ["it has the partitions"],
        "test_signature": ["it holds …"],
        "test_the_label_in_front_of_a_wiped_filesystem_is_not_ours": ["it holds data"],
        "test_too_small": ["it is too small:"],
        "test_two_claims_at_once": ["this session"],
    },
    "tests/real/machine/test_hidden_users_of_devices.py": {
        "test_a_hidden_user_is_seen": ["… is mapped into"],
    },
    "tests/real/machine/test_label_vouches_for_contents.py": {
        "test_a_label_of_format_1_proves_nothing": ["it carries a"],
        "test_a_label_with_another_digest_is_refused": ["it carries the scratch label,"],
    },
    "tests/real/machine/test_outliving_sigkill.py": {
        "test_a_command_is_reported_and_left_behind": ["…, which did"],
        "test_so_is_a_daemon": ["process … survived"],
    },
    "tests/real/test_cleanup.py": {
        "test_a_disk_that_the_user_has_formatted_since_is_left_alone": ["nothing proves"],
        "test_files_that_were_put_on_it_since_are_not_lost_even_if_asked": ["it holds what"],
        "test_no_session_empties_a_disk_by_itself_in_which_there_may_be_files_by_now": ["somebody may"],
    },
    "tests/real/test_exchanged_devices.py": {
        "test_a_link_that_leads_to_another_disk_later_is_refused_for_good": ["it is not the", "… is not the"],
    },
    "tests/real/test_leftovers.py": {
        "test_what_is_mounted_while_a_directory_is_removed_is_kept": ["something is mounted on …, so nothing in"],
    },
    "tests/real/test_servers.py": {
        "test_one_that_dies_while_it_is_in_use_is_named": ["it ended …"],
        "test_one_that_hangs_is_killed_and_named_and_leaves_nothing": ["…; its server"],
    },
    "tests/real/test_unmounted_by_others.py": {
        "test_it_is_an_error_and_leaves_nothing": ["it is not mounted"],
    },
    "tests/real/workloads/test_workloads.py": {
        "test_a_device_that_was_written_before_does_not_pass_for_written": ["…, the … bytes"],
        "test_on_memory": ["…: … has only … of … x"],
    },
    "tests/unit/command/test_comparing.py": {
        "test_a_gate_that_could_judge_nothing_does_not_pass": ["compare: nothing"],
        "test_wrong_usage_is_a_sentence_and_exit_code_4": [
            "…: nothing was measured in this",
            "compare: name",
            "compare: … is",
            "not compared:",
        ],
    },
    "tests/unit/stack/test_taken_down.py": {
        "test_a_checker_that_cannot_check_is_an_error": ["could not check"],
        "test_a_scrub_that_cannot_be_made_is_an_error": ["could not scrub"],
        "test_a_layer_that_refuses_leaves_what_is_below_it_and_can_be_opened_later": ["a layer of"],
        "test_an_unknown_layer_is_named_before_anything_is_taken_down": ["… has no layer"],
        "test_what_keeps_nothing_is_not_taken_down": ["… cannot be taken down and"],
    },
    "tests/unit/truth/test_rot.py": {
        "test_what_cannot_be_undone_is_an_error": ["…: with all flips"],
        "test_what_is_wrong_before_any_flip_is_an_error": ["…: before any"],
        "test_where_no_files_are_kept_nothing_can_be_flipped": ["…: nothing of"],
    },
    "tests/unit/test_explain.py": {
        "test_a_layer_that_goes_past_the_plugin_is_stopped_and_named": ["a layer starts"],
    },
    "tests/unit/command/test_trend.py": {
        "test_a_history_without_an_overhead_is_told": ["trend: …: no"],
        "test_without_otava_a_sentence_says_how_to_get_it": ["trend: Apache"],
        "test_wrong_usage_is_a_sentence": ["…: there is no history", "must be a number of days"],
    },
    "tests/unit/data/test_backup.py": {
        "test_what_cannot_be_is_refused": ["a backup needs", "… links do not"],
    },
    "tests/unit/data/test_corpus.py": {
        "test_an_unknown_tool_names_those_there_are": ["… is none of"],
        "test_what_no_zip_archive_can_hold_is_refused": ["corpus …: … is a hard link,", "corpus …: … is not"],
    },
    "tests/unit/judging/test_failure_text.py": {
        "test_a_figure_of_0_is_not_called_one_that_was_not_measured": ["…: figures of"],
    },
    "tests/unit/kernels/test_kernels.py": {
        "test_a_guest_that_cannot_be_started_is_stood_in_for": ["kernel …: cannot"],
        "test_what_is_no_kernel_is_told": ["cannot unpack"],
        "test_why_a_guest_does_not_answer_is_told": ["kernel …: pytest"],
    },
    "tests/unit/layers/test_block_layers.py": {
        "test_a_part_that_does_not_fit_is_told": ["… does not fit"],
    },
    "tests/unit/layers/test_filesystems.py": {
        "test_where_none_can_it_says_why": ["could not trim"],
    },
    "tests/unit/judging/test_saved.py": {
        "test_a_budget_that_is_none_is_refused": ["a budget for"],
    },
    "tests/unit/machine/test_commands.py": {
        "test_a_command_that_the_kernel_cannot_run_says_why": ["could not be"],
    },
    "tests/unit/machine/test_guard.py": {
        "test_a_blkid_that_cannot_be_understood_is_no_blank_device": ["its output"],
        "test_a_claim_excludes_all_others_on_the_same_bytes": ["… is testing"],
        "test_a_container_that_hides_the_processes_of_the_host": ["the processes"],
        "test_a_device_behind_a_loop_device": ["… is behind the"],
        "test_a_drive_without_a_medium_is_refused": ["it has no medium"],
        "test_a_living_process_that_cannot_be_looked_into_is_a_reason": ["it cannot be"],
        "test_a_member_of_a_device_mapper_device": ["… is part of …;"],
        "test_all_that_the_root_filesystem_is_on_is_refused": ["the root filesystem"],
        "test_an_ordinary_user_is_told_to_be_root": ["that needs root"],
        "test_another_device_of_a_mounted_btrfs": ["… is part of the"],
        "test_held_by_the_kernel_in_a_way_that_shows_nowhere_else": ["it is in use by"],
        "test_mounted_in_another_namespace": ["… is mounted"],
        "test_open_in_a_process": ["… is open in"],
        "test_read_only": ["it is read-only;"],
        "test_swap_space": ["… is swap space;"],
    },
    "tests/unit/machine/test_journal.py": {
        "test_a_directory_that_the_session_did_not_see_made_is_left_alone": ["the session did"],
        "test_a_directory_with_something_mounted_in_it_is_left_alone": ["something is mounted on …, so nothing was"],
        "test_a_disk_that_was_plugged_in_again_is_left_alone": ["it is another disk"],
        "test_a_disk_without_a_sequence_number_is_left_alone": ["this kernel does"],
        "test_a_link_in_place_of_a_directory_is_left_alone": ["it is no directory"],
        "test_a_name_that_a_living_session_has_as_well_is_left_alone": ["a session that"],
        "test_another_directory_of_that_name_is_left_alone": ["it is another one"],
    },
    "tests/unit/machine/test_signals.py": {
        "test_python_code_that_hangs_is_interrupted": ["… has not ended"],
    },
    "tests/unit/machine/test_tuning.py": {
        "test_a_clean_up_leaves_alone_what_was_changed_since": ["it is … now,"],
        "test_a_clean_up_writes_to_no_other_file": ["that is nothing"],
        "test_what_the_kernel_does_not_take_is_told_with_what_it_offers": ["… cannot be set"],
        "test_what_the_kernel_rounds_is_told": ["the kernel made"],
    },
    "tests/unit/measuring/test_timed.py": {
        "test_a_filesystem_that_hangs_ends_the_wait": ["the kernel has"],
        "test_a_machine_without_the_command_says_so": ["needs the command"],
        "test_the_one_that_tests_use_takes_and_refuses_the_same": ["a test has one"],
    },
    "tests/unit/report/test_charts.py": {
        "test_one_stack_alone_is_compared_with_nothing": ["not written: no"],
    },
    "tests/unit/report/test_report_files.py": {
        "test_a_block_device_is_not_a_file_for_reports": ["is a block device"],
        "test_permission_is_asked_for_before": ["no permission"],
        "test_two_reports_in_one_file_are_refused": ["the report …"],
        "test_what_cannot_be_written_is_said_at_once": ["is a directory"],
    },
    "tests/unit/stack/test_taking_down.py": {
        "test_a_file_that_the_test_holds_open_is_named_with_what_to_do": ["… remounts …:"],
    },
    "tests/unit/test_cleanup.py": {
        "test_a_third_partys_layer_brings_its_kind": ["nothing here"],
        "test_two_kinds_of_a_name_are_refused": ["two kinds of"],
    },
    "tests/unit/test_past.py": {
        "test_a_directory_without_any_is_refused": ["there is no *.json"],
    },
    "tests/unit/truth/test_cutting.py": {
        "test_without_a_log_there_is_nothing_to_cut": ["no power can"],
    },
    "tests/unit/truth/test_writelog.py": {
        "test_what_is_no_log_and_a_log_that_is_cut_off_are_told": ["… is not a log", "… ends after"],
    },
    "tests/unit/truth/test_fsx.py": {
        "test_what_says_nothing_of_the_file_is_an_error": ["fsx: it ended"],
    },
    "tests/unit/truth/test_posix.py": {
        "test_a_summary_of_something_else_is_an_error": ["pjdfstest: its summary"],
        "test_it_acts_as_two_users_with_groups_of_their_own": ["pjdfstest: it acts"],
        "test_what_ends_without_a_summary_is_an_error": ["pjdfstest: it ended"],
        "test_where_nobody_knows_which_one_hangs_it_is_an_error": ["pjdfstest: it had"],
    },
    "tests/unit/workloads/test_ageing.py": {
        "test_notices": [
            "…: after a remount,",
            "…: after a remount … is not there",
            "…: after a remount … has … bytes instead",
        ],
        "test_refuses_what_cannot_be": ["… must be above", "age: cannot probe"],
        "test_too_little_room_is_refused": ["ageing needs"],
    },
    "tests/unit/workloads/test_block.py": {
        "test_needs_what_it_reads": ["dd_read: there"],
        "test_notices_a_short_read": ["…: dd copied"],
        "test_notices_what_is_missing": ["…: … is not there", "…: … has … bytes"],
        "test_refuses_what_makes_no_sense": ["…: … bytes are", "…: … has only … of … bytes"],
        "test_says_how_to_write": ["…: cannot read"],
    },
    "tests/unit/workloads/test_bonnieplus.py": {
        "test_needs_a_filesystem": ["bonnie: … is"],
        "test_notices_what_is_left": ["bonnie: it left"],
        "test_what_is_not_complete_is_refused": [
            "bonnie: … lines",
            "bonnie: its CSV is",
            "bonnie: its CSV has … fields",
        ],
    },
    "tests/unit/workloads/test_build.py": {
        "test_a_product_that_is_not_whole_is_noticed": [
            "…: after a remount … has … bytes,",
            "…: after a remount … is not an",
        ],
        "test_a_tree_that_is_built_already_is_refused": ["compile_source: … is"],
        "test_another_tree_is_refused": ["compile_source: … holds"],
        "test_what_made_nothing_is_noticed": ["…: after a remount there", "…: after a remount … has … bytes;"],
    },
    "tests/unit/workloads/test_copy.py": {
        "test_does_not_copy_over_something": ["copy_file: …"],
        "test_in_place_it_keeps_its_size": ["overwrite_file: in"],
        "test_needs_the_file": ["…: there is no file"],
        "test_notices_that_it_was_not_all": ["read_back: dd"],
    },
    "tests/unit/workloads/test_filler.py": {
        "test_notices": ["fill: after a remount, the 1"],
        "test_notices_that_it_is_not_full": ["fill: after a remount, the filesystem"],
        "test_refuses_what_cannot_be": ["…: … has less", "… percent must"],
        "test_says_that_zeros_do_not_fill": ["fill: … bytes"],
        "test_says_where_there_is_no_room": ["fill: there was"],
    },
    "tests/unit/workloads/test_fiojob.py": {
        "test_refuses_options_that_it_sets": ["fio: … cannot"],
        "test_refuses_what_makes_no_sense": ["fio: … x … bytes"],
        "test_tells_fio": ["fio: it transferred"],
        "test_what_cannot_be_trusted_is_refused": ["fio: cannot read", "fio: … of … jobs"],
    },
    "tests/unit/workloads/test_hardlinks.py": {
        "test_notices_other_losses_than_were_told": ["extract_backup: …"],
        "test_notices_what_is_left": ["…: … is still"],
    },
    "tests/unit/workloads/test_latency.py": {
        "test_notices_other_files_than_the_corpus_has": ["delete_files: removed"],
        "test_notices_that_there_is_nothing": ["delete_files: there"],
        "test_refuses_nothing_to_do": ["create_files: count"],
    },
    "tests/unit/workloads/test_space.py": {
        "test_refuses_what_cannot_be": ["small_file_space: count"],
    },
    "tests/unit/workloads/test_workloads.py": {
        "test_needs_a_tree": ["…: there is no directory … on"],
        "test_needs_an_empty_target": ["rsync_dry_run: …"],
        "test_notices_a_run_that_was_not_dry": ["rsync: a dry"],
        "test_notices_a_wrong_figure": ["du: says … bytes,"],
        "test_notices_no_figure": ["du: cannot read"],
    },
}

#: By the tests' ids.
CAUSED_ELSEWHERE = {f"{path}::{name}": texts for path, tests in _TESTS.items() for name, texts in tests.items()}
