"""Writes what follows from other files here: the dashboards' JSON, their ConfigMap, and the rules as a PrometheusRule.

`python deploy/monitoring/build.py` from the repository; needs the development extras. A test compares.
"""

from pathlib import Path
from typing import Any, Final

import yaml
from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef

HERE: Final = Path(__file__).parent
P: Final = "accelerator_rollout"
NAMESPACE: Final = "accelerator-rollout-system"
SOURCE: Final = DataSourceRef(type_val="prometheus", uid="${datasource}")
ONE: Final = '{namespace=~"$namespace",name=~"$name"}'

# Title, unit, and by legend the query.
Panel = tuple[str, str, dict[str, str]]

FLEET: Final[tuple[Panel, ...]] = (
    ("AcceleratorRollouts", "short", {"": f"count({P}_info)"}),
    ("In progress", "short", {"": f'count({P}_latest_outcome{{outcome="InProgress"}}) or vector(0)'}),
    ("Stalled", "short", {"": f'count({P}_condition{{type="Stalled"}} == 1) or vector(0)'}),
    ("Releases without proof", "short", {"": f"sum({P}_unproven_releases)"}),
    ("Replacements by stage", "short", {"{{stage}}": f"sum by (stage) ({P}_replacements) or vector(0)"}),
    ("Newest outcome", "short", {"{{outcome}}": f"count by (outcome) ({P}_latest_outcome)"}),
    (
        "Device release by driver, 90th percentile",
        "s",
        {"{{driver}}": f"histogram_quantile(0.9, sum by (driver, le) ({P}_device_release_seconds_bucket))"},
    ),
    (
        "Stage duration, median",
        "s",
        {"{{stage}}": f"histogram_quantile(0.5, sum by (stage, le) ({P}_stage_duration_seconds_bucket))"},
    ),
    (
        "Teardown by workload, mean",
        "s",
        {"{{namespace}}/{{workload}}": f"topk(10, {P}_teardown_seconds_sum / {P}_teardown_seconds_count)"},
    ),
    ("Oldest gates", "s", {"{{namespace}}/{{name}}": f"topk(10, {P}_oldest_gate_age_seconds)"}),
    ("Holds in force", "short", {"{{namespace}}/{{name}}": f"topk(10, {P}_holds_in_force)"}),
)
ROLLOUT: Final[tuple[Panel, ...]] = (
    ("Newest outcome", "short", {"{{outcome}}": f"{P}_latest_outcome{ONE}"}),
    ("Pods", "short", {"{{state}}": f"{P}_replicas{ONE}"}),
    ("Replacements in flight", "short", {"": f"{P}_replacements_in_flight{ONE}"}),
    ("Conditions", "short", {"{{type}}: {{reason}}": f"{P}_condition{ONE}"}),
    ("Age of the oldest gate", "s", {"": f"{P}_oldest_gate_age_seconds{ONE}"}),
    ("Releases without proof", "short", {"": f"{P}_unproven_releases{ONE}"}),
    ("Holds in force", "short", {"": f"{P}_holds_in_force{ONE}"}),
    ("Teardown, mean", "s", {"": f"{P}_teardown_seconds_sum{ONE} / {P}_teardown_seconds_count{ONE}"}),
    ("Rollouts that ended", "short", {"{{outcome}}": f"{P}_outcomes_total{ONE}"}),
)
OPERATOR: Final[tuple[Panel, ...]] = (
    ("Version", "short", {"{{version}}": f"{P}_build_info"}),
    ("Leaders", "short", {"": f"sum({P}_leader)"}),
    ("Age of the store", "s", {"{{instance}}": f"{P}_store_age_seconds"}),
    ("Watches that stand", "short", {"{{resource}}": f"{P}_watch_up"}),
    ("Watch last heard of", "s", {"{{resource}}": f"{P}_watch_age_seconds"}),
    ("Comparisons", "short", {"{{result}}": f"sum by (result) (increase({P}_resyncs_total[5m]))"}),
    ("Missed changes", "short", {"{{instance}}": f"{P}_watch_missed_changes_total"}),
    ("Queue depth", "short", {"{{instance}}": f"{P}_queue_depth"}),
    (
        "Wait in the queue, 99th percentile",
        "s",
        {"": f"histogram_quantile(0.99, sum by (le) ({P}_queue_wait_seconds_bucket))"},
    ),
    (
        "Decision, 99th percentile",
        "s",
        {"": f"histogram_quantile(0.99, sum by (le) ({P}_reconcile_duration_seconds_bucket))"},
    ),
    ("Failed decisions", "short", {"": f"sum({P}_reconcile_errors_total) or vector(0)"}),
    (
        "API requests",
        "reqps",
        {"{{verb}} {{code}}": f"sum by (verb, code) (rate({P}_api_requests_total[5m]))"},
    ),
    ("Acts", "short", {"{{action}} {{result}}": f"sum by (action, result) ({P}_actions_total)"}),
    ("Unreadable objects", "short", {"": f"sum({P}_unreadable_objects)"}),
)
BOARDS: Final = {
    "fleet": ("Accelerator rollouts: fleet", FLEET, ()),
    "rollout": ("Accelerator rollouts: one rollout", ROLLOUT, ("namespace", "name")),
    "operator": ("Accelerator rollouts: operator health", OPERATOR, ()),
}


def board(uid: str) -> str:
    """Return one dashboard as JSON."""
    title, panels, variables = BOARDS[uid]
    made = dashboard.Dashboard(title).uid(f"accelerator-rollout-{uid}").tags(["accelerator-rollout"])
    made = made.refresh("30s").time("now-1h", "now").editable()
    made = made.with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
    for variable in variables:
        scope = '{namespace=~"$namespace"}' if variable == "name" else ""
        query = f"label_values({P}_info{scope}, {variable})"
        made = made.with_variable(
            dashboard.QueryVariable(variable).datasource(SOURCE).query(query).refresh(2)
        )
    for name, unit, queries in panels:
        panel = timeseries.Panel().title(name).unit(unit).datasource(SOURCE).height(8).span(8)
        panel = panel.legend(common.VizLegendOptions().show_legend(True))  # noqa: FBT003 - the SDK's way
        for number, (legend, expression) in enumerate(queries.items()):
            query = prometheus.Dataquery().expr(expression).legend_format(legend).ref_id("ABCD"[number])
            panel = panel.with_target(query)
        made = made.with_panel(panel)
    return JSONEncoder(sort_keys=True, indent=1).encode(made.build()) + "\n"


def files() -> dict[Path, str]:
    """Return every file that is made here."""
    found = {HERE / "dashboards" / f"{uid}.json": board(uid) for uid in BOARDS}
    rules = yaml.safe_load((HERE / "rules.yaml").read_text(encoding="utf-8"))
    labels = {"app.kubernetes.io/name": "accelerator-rollout"}
    rule: dict[str, Any] = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {"name": "accelerator-rollout", "namespace": NAMESPACE, "labels": labels},
        "spec": rules,
    }
    note = "# Made by ../build.py from ../rules.yaml.\n"
    text = yaml.safe_dump(rule, sort_keys=False, width=120)
    found[HERE / "prometheus-operator" / "prometheusrule.yaml"] = note + text
    return found


if __name__ == "__main__":
    for file, content in files().items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content, encoding="utf-8")
