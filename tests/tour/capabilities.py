"""What gpuwright can do, and the test of the tour that shows it."""

from __future__ import annotations

CAPABILITIES = {
    "one command starts a control plane with its own Postgres, a planner and a console":
        "test_people::test_a_link_opens_the_console_once_and_nobody_else_comes_in",
    "what is declared in a file is planned, started and answers requests":
        "test_looking::test_what_is_declared_in_a_file_is_planned_started_and_answers",
    "a file with faults is refused as a whole, with every fault":
        "test_looking::test_a_file_with_faults_is_refused_with_all_of_them_and_nothing_of_it_is_stored",
    "diff shows what apply would change":
        "test_looking::test_diff_names_the_field_that_would_change_and_changes_nothing",
    "explain gives reasons for a service and a plan":
        "test_looking::test_explain_says_where_a_service_runs_why_there_and_what_the_plan_costs",
    "what-if prices a change and makes none":
        "test_looking::test_what_if_prices_ten_times_the_load_and_touches_nothing",
    "top shows plan, services and GPUs": "test_looking::test_top_shows_the_plan_its_services_and_its_gpus",
    "a recorded decision can be made again":
        "test_looking::test_a_recorded_decision_comes_out_the_same_when_it_is_made_again",
    "a plan waits for a person's approval":
        "test_changing::test_a_plan_in_mode_approve_is_carried_out_once_it_is_approved",
    "a plan is rolled back, and the fleet waits until it is resumed":
        "test_changing::test_a_rollback_brings_the_plan_before_back_and_plans_wait_until_the_fleet_is_resumed",
    "a node is drained without a gap": "test_machines::"
        "test_a_drained_node_hands_its_copies_over_before_it_loses_them_and_takes_others_once_it_is_back",
    "a dead node's copies start elsewhere":
        "test_machines::test_a_node_that_dies_is_replaced_by_others_and_is_used_again_when_it_returns",
    "agents set clocks and SM% as planned":
        "test_machines::test_a_gpu_has_the_clock_and_its_copies_have_the_sm_percent_that_the_plan_says",
    "new load is served while the solver dies":
        "test_machines::test_while_the_solver_dies_the_greedy_serves_what_is_new",
    "a job gives way and goes on from its last save":
        "test_working::test_a_job_gives_way_to_a_service_and_goes_on_from_its_last_save",
    "a language model has a whole GPU and streams":
        "test_working::test_a_language_model_gets_a_whole_gpu_and_streams_its_tokens",
    "the ledger, SQL and reports agree to the last digit":
        "test_money::test_a_day_costs_the_same_in_the_report_in_sql_in_the_ledger_and_by_price",
    "the console shows the fleet": "test_people::test_a_page_of_the_console_shows_what_the_fleet_does",
    "a tenant's token sees its own things only":
        "test_people::test_a_tenants_token_sees_its_own_services_and_another_tenant_where_others_are",
    "the audit names who did what": "test_people::test_the_audit_names_who_declared_what",
    **{
        f"the planner {planner} plans files, and the judge agrees":
            f"test_files::test_each_planner_plans_the_first_example_and_the_judge_finds_no_rule_broken[{planner}]"
        for planner in ("joint", "hetsev", "mudi", "inss", "morak", "oltunes")
    },
    "a fleet of files runs in virtual time":
        "test_files::test_ten_minutes_pass_in_virtual_time_and_every_service_keeps_its_slo",
}  # fmt: skip
