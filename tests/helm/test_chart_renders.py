"""What the chart renders: ports, probes, grace, security, storage, and values that must survive."""

from __future__ import annotations

import pytest
from chart import CHART, RefusedError, Render

COMPONENTS = {
    "runtime": (50051, "turnwire.api.runtime.v1.TurnService"),
    "control": (50052, "turnwire.api.control.v1.ControlService"),
    "executor": (50053, "turnwire.api.executor.v1.ToolExecutorService"),
}
CI_FILES = sorted(path.name for path in (CHART / "ci").glob("*-values.yaml"))
SECURE = {"tls": {"secretName": "tls"}, "auth": {"secretName": "auth"}}

each_component = pytest.mark.parametrize("name", COMPONENTS)


def pod(documents: dict, name: str, base: str = "tw-turnwire") -> dict:
    spec: dict = documents["Deployment", f"{base}-{name}"]["spec"]["template"]["spec"]
    return spec


def environment(documents: dict, name: str, base: str = "tw-turnwire") -> dict[str, str]:
    data: dict[str, str] = documents["ConfigMap", f"{base}-{name}"]["data"]
    return data


@pytest.mark.parametrize("file", CI_FILES)
def test_each_ci_file_renders_three_deployments(render: Render, file: str) -> None:
    kinds = [kind for kind, _ in render(file=file)]
    assert kinds.count("Deployment") == 3
    assert kinds.count("Service") == 6
    assert kinds.count("ConfigMap") >= 3


@each_component
def test_one_port_runs_through_container_service_settings_and_probes(render: Render, name: str) -> None:
    port, service = COMPONENTS[name]
    documents = render({"insecure": True})
    container = pod(documents, name)["containers"][0]
    assert container["command"] == [f"turnwire-{name}"]
    assert container["ports"] == [{"name": "grpc", "containerPort": port}]
    assert container["readinessProbe"]["grpc"] == {"port": port, "service": service}
    assert container["livenessProbe"]["grpc"] == {"port": port, "service": "liveness"}
    assert container["startupProbe"]["grpc"] == {"port": port, "service": "liveness"}
    assert environment(documents, name)[f"TURNWIRE_{name.upper()}_LISTEN__PORT"] == str(port)
    for suffix in ("", "-headless"):
        spec = documents["Service", f"tw-turnwire-{name}{suffix}"]["spec"]
        assert spec["ports"] == [{"name": "grpc", "port": port, "targetPort": "grpc"}]
        assert spec.get("clusterIP") == ("None" if suffix else None)
        assert "publishNotReadyAddresses" not in spec


@each_component
def test_probes_ask_over_tls_from_inside_the_pod(render: Render, name: str) -> None:
    container = pod(render(SECURE), name)["containers"][0]
    command = container["readinessProbe"]["exec"]["command"]
    assert command[0] == "grpc_health_probe"
    assert f"-service={COMPONENTS[name][1]}" in command
    assert "-tls" in command
    assert "-tls-client-cert=/etc/turnwire/tls/tls.crt" not in command


@each_component
@pytest.mark.parametrize(
    ("delay", "grace", "needed"), [(5, 40, 60), (0, 0, 15), (2.5, 10, 28), (30, 300, 345)]
)
def test_grace_period_is_the_sum_of_the_drain(
    render: Render, name: str, delay: float, grace: float, needed: int
) -> None:
    drain = {"delaySeconds": delay, "graceSeconds": grace}
    documents = render({"insecure": True, name: {"drain": drain}})
    assert pod(documents, name)["terminationGracePeriodSeconds"] == needed
    settings = environment(documents, name)
    prefix = f"TURNWIRE_{name.upper()}_DRAIN__"
    assert float(settings[prefix + "DRAIN_DELAY_SECONDS"]) == delay
    assert float(settings[prefix + "STOP_GRACE_SECONDS"]) == grace
    assert int(settings[prefix + "TERMINATION_GRACE_SECONDS"]) == needed


def test_grace_period_may_be_longer_and_never_shorter(render: Render) -> None:
    longer = render({"insecure": True, "control": {"terminationGracePeriodSeconds": 31}})
    assert pod(longer, "control")["terminationGracePeriodSeconds"] == 31
    with pytest.raises(RefusedError, match=r"draining takes up to 30 s"):
        render({"insecure": True, "control": {"terminationGracePeriodSeconds": 29}})
    with pytest.raises(RefusedError, match=r"terminationGracePeriodSeconds is 0"):
        render({"insecure": True, "control": {"terminationGracePeriodSeconds": 0}})


@each_component
def test_pods_are_locked_down_by_default(render: Render, name: str) -> None:
    spec = pod(render({"insecure": True}), name)
    assert spec["automountServiceAccountToken"] is False
    assert spec["enableServiceLinks"] is False
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["runAsUser"] == 65532
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert spec["containers"][0]["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@each_component
def test_one_process_owns_the_file_at_any_time(render: Render, name: str) -> None:
    deployment = render({"insecure": True})["Deployment", f"tw-turnwire-{name}"]["spec"]
    assert deployment["replicas"] == 1
    assert deployment["strategy"] == {"type": "Recreate"}
    with pytest.raises(RefusedError, match="one process per file"):
        render({"insecure": True, name: {"replicas": 2}})
    with pytest.raises(RefusedError):
        render({"insecure": True, name: {"replicas": -1}})


def test_zero_replicas_stay_zero(render: Render) -> None:
    documents = render({"insecure": True, "control": {"replicas": 0}})
    assert documents["Deployment", "tw-turnwire-control"]["spec"]["replicas"] == 0


def test_zero_false_and_fractions_survive_and_null_leaves(render: Render) -> None:
    settings = environment(render(file="edges-values.yaml"), "runtime", "tw")
    assert settings["TURNWIRE_RUNTIME_LISTEN__MAX_CONNECTION_AGE_SECONDS"] == "0"
    assert settings["TURNWIRE_RUNTIME_LISTEN__REFLECTION"] == "false"
    assert settings["TURNWIRE_RUNTIME_LISTEN__MAX_MESSAGE_BYTES"] == "1000000"
    assert settings["TURNWIRE_RUNTIME_TELEMETRY__SAMPLE_RATIO"] == "0.25"
    assert "TURNWIRE_RUNTIME_TELEMETRY__OTLP_ENDPOINT" not in settings
    assert all(isinstance(value, str) for value in settings.values())


def test_parts_that_are_off_are_absent(render: Render) -> None:
    edges = {kind for kind, _ in render(file="edges-values.yaml")}
    assert not edges & {"ServiceAccount", "NetworkPolicy"}
    insecure = render(file="insecure-values.yaml")
    assert "PersistentVolumeClaim" not in {kind for kind, _ in insecure}
    volumes = {volume["name"]: volume for volume in pod(insecure, "runtime")["volumes"]}
    assert volumes["data"]["emptyDir"] == {"sizeLimit": "8Gi"}


def test_a_claim_of_the_operator_is_used_as_it_is(render: Render) -> None:
    documents = render(file="secure-values.yaml")
    assert ("PersistentVolumeClaim", "tw-turnwire-executor") not in documents
    volumes = {volume["name"]: volume for volume in pod(documents, "executor")["volumes"]}
    assert volumes["data"]["persistentVolumeClaim"] == {"claimName": "results"}


@pytest.mark.parametrize("missing", ["tls", "auth"])
def test_listening_without_tls_or_tokens_must_be_said_by_name(render: Render, missing: str) -> None:
    values = {key: value for key, value in SECURE.items() if key != missing}
    with pytest.raises(RefusedError, match=rf"{missing}\.secretName is empty.*insecure: true"):
        render(values)
    settings = environment(render(SECURE), "runtime")
    assert settings["TURNWIRE_RUNTIME_LISTEN__INSECURE"] == "false"
    assert settings["TURNWIRE_RUNTIME_LISTEN__TLS_CERT"] == "/etc/turnwire/tls/tls.crt"
    assert settings["TURNWIRE_RUNTIME_LISTEN__TOKENS_FILE"] == "/etc/turnwire/auth/tokens.yaml"
    assert "TURNWIRE_RUNTIME_CONTROL__INSECURE" not in settings


def test_secrets_come_by_name_only(render: Render) -> None:
    container = pod(render(file="secure-values.yaml"), "runtime")["containers"][0]
    assert container["env"] == [
        {
            "name": "OPENAI_API_KEY",
            "valueFrom": {"secretKeyRef": {"name": "provider-keys", "key": "openai"}},
        }
    ]


def test_only_the_runtime_holds_its_token(render: Render) -> None:
    documents = render(SECURE)
    for name in COMPONENTS:
        auth = next(v for v in pod(documents, name)["volumes"] if v["name"] == "auth")
        keys = {item["key"] for item in auth["secret"]["items"]}
        assert keys == ({"tokens.yaml", "runtime-token"} if name == "runtime" else {"tokens.yaml"})


def test_the_runtime_dials_the_headless_services(render: Render) -> None:
    documents = render({"insecure": True})
    settings = environment(documents, "runtime")
    for peer in ("control", "executor"):
        target = settings[f"TURNWIRE_RUNTIME_{peer.upper()}__TARGET"]
        assert target == f"dns:///tw-turnwire-{peer}-headless.agents.svc:{COMPONENTS[peer][0]}"
        assert ("Service", f"tw-turnwire-{peer}-headless") in documents


@each_component
def test_selectors_find_their_own_pods_alone(render: Render, name: str) -> None:
    documents = render({"insecure": True})
    labels = {
        other: documents["Deployment", f"tw-turnwire-{other}"]["spec"]["template"]["metadata"]["labels"]
        for other in COMPONENTS
    }
    selector = documents["Service", f"tw-turnwire-{name}"]["spec"]["selector"]
    matching = [other for other, found in labels.items() if selector.items() <= found.items()]
    assert matching == [name]
    assert documents["Deployment", f"tw-turnwire-{name}"]["spec"]["selector"]["matchLabels"] == selector


def test_policies_let_in_named_peers_and_keep_tools_inside(render: Render) -> None:
    documents = render({"insecure": True})
    executor = documents["NetworkPolicy", "tw-turnwire-executor"]["spec"]
    assert executor["policyTypes"] == ["Ingress", "Egress"]
    assert executor["egress"] == []
    peers = executor["ingress"][0]["from"]
    assert [p["podSelector"]["matchLabels"]["app.kubernetes.io/component"] for p in peers] == ["runtime"]
    runtime = documents["NetworkPolicy", "tw-turnwire-runtime"]["spec"]
    assert runtime["ingress"][0]["from"] == [
        {"podSelector": {"matchLabels": {"turnwire.dev/client": "true"}}}
    ]
    ports = [port["port"] for rule in runtime["egress"] for port in rule["ports"]]
    assert ports == [50052, 50053, 53, 53, 443]


def test_a_changed_setting_replaces_the_pod(render: Render) -> None:
    def checksum(values: dict) -> str:
        template = render(values)["Deployment", "tw-turnwire-runtime"]["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/config"])

    before = checksum({"insecure": True})
    assert before == checksum({"insecure": True, "control": {"config": {"log": {"level": "DEBUG"}}}})
    assert before != checksum({"insecure": True, "runtime": {"config": {"log": {"level": "DEBUG"}}}})


def test_settings_that_the_chart_derives_are_not_set_twice(render: Render) -> None:
    with pytest.raises(RefusedError, match="TURNWIRE_RUNTIME_LISTEN__PORT"):
        render({"insecure": True, "runtime": {"config": {"listen": {"port": 1}}}})


def test_files_are_mounted_and_replace_the_pod_when_they_change(render: Render) -> None:
    def deployed(content: str) -> tuple[dict, dict]:
        documents = render({"insecure": True, "executor": {"files": {"tools.py": content}}})
        assert documents["ConfigMap", "tw-turnwire-executor-files"]["data"] == {"tools.py": content}
        assert ("ConfigMap", "tw-turnwire-runtime-files") not in documents
        template = documents["Deployment", "tw-turnwire-executor"]["spec"]["template"]
        return template["spec"], template["metadata"]["annotations"]

    spec, before = deployed("x = 1\n")
    mounts = {mount["name"]: mount for mount in spec["containers"][0]["volumeMounts"]}
    assert mounts["files"] == {"name": "files", "mountPath": "/etc/turnwire/files", "readOnly": True}
    assert before != deployed("x = 2\n")[1]


def test_the_test_pod_runs_one_turn_against_the_services(render: Render) -> None:
    def container(values: dict) -> dict:
        found: dict = render(values)["Pod", "tw-turnwire-test"]["spec"]["containers"][0]
        return found

    plain = {item["name"]: item for item in container({"insecure": True})["env"]}
    assert plain["TURNWIRE_TARGET"]["value"] == "dns:///tw-turnwire-runtime-headless.agents.svc:50051"
    assert set(plain) == {"TURNWIRE_TARGET", "TURNWIRE_CONTROL_TARGET"}
    secure = {item["name"]: item for item in container(SECURE)["env"]}
    assert secure["TURNWIRE_TOKEN"]["valueFrom"]["secretKeyRef"] == {"name": "auth", "key": "caller-token"}
    assert secure["TURNWIRE_TLS_CA"]["value"] == "/etc/turnwire/tls/ca.crt"
    assert ("Pod", "tw-test") not in render(file="edges-values.yaml")


def test_the_digest_beats_the_tag(render: Render) -> None:
    digest = "sha256:" + "0" * 64
    values = {"insecure": True, "image": {"repository": "r/t", "tag": "x"}}
    assert pod(render(values), "runtime")["containers"][0]["image"] == "r/t:x"
    values["image"]["digest"] = digest  # type: ignore[index]
    assert pod(render(values), "runtime")["containers"][0]["image"] == f"r/t@{digest}"
