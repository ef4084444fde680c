"""Launch commands in the forms people keep them in."""

from __future__ import annotations

import contextlib
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sglfleet.launch.command import visible_gpus
from sglfleet.launch.find import in_file, in_text
from sglfleet.launch.manifest import ManifestError

FUSION = "--enable-flashinfer-allreduce-fusion"

FORMS = {
    "pasted": ("command", "python3 -m sglang.launch_server --model-path /m --tp 4 " + FUSION),
    "pasted with a prompt": (
        "command",
        "root@gpu-1:~# python -m sglang.launch_server --model-path /m --tp 4 " + FUSION,
    ),
    "serve with the model by position": ("command", f"sglang serve /m --tp 4 {FUSION}"),
    "flags alone": ("command", f"--model-path /m --tp 4 {FUSION}"),
    "continued lines with a comment between": (
        "run.sh",
        f"""
        #!/bin/bash
        python -m sglang.launch_server \\
          --model-path /m \\
          # four cards
          --tp 4 {FUSION} > server.log 2>&1 &
        """,
    ),
    "variables and an array": (
        "run.sh",
        f"""
        MODEL=/m
        TP=${{TP:-4}}
        ARGS=(
          --tp $TP   # cards
          {FUSION}
        )
        nohup python3 -m sglang.launch_server --model-path "$MODEL" "${{ARGS[@]}}" | tee log
        """,
    ),
    "docker run": (
        "run.sh",
        f"docker run --gpus all -e NCCL_P2P_LEVEL=SYS lmsysorg/sglang:v0.5.9-cu130 python3 -m sglang.launch_server "
        f"--model-path /m --tp 4 {FUSION}",
    ),
    "systemd unit": (
        "sglang.service",
        f"""
        [Unit]
        Description=SGLang
        [Service]
        Environment="NCCL_P2P_LEVEL=SYS"
        Environment=TP=4
        ExecStart=/opt/sglang/bin/python -m sglang.launch_server \\
            --model-path /m --tp ${{TP}} \\
            {FUSION}
        """,
    ),
    "systemd unit through a shell": (
        "sglang.service",
        f"""
        [Service]
        ExecStart=/bin/bash -c 'exec python -m sglang.launch_server --model-path /m --tp 4 {FUSION}'
        """,
    ),
    "compose, list": (
        "docker-compose.yml",
        f"""
        services:
          sglang:
            image: lmsysorg/sglang:v0.5.9
            environment: [NCCL_P2P_LEVEL=SYS]
            command: [python3, -m, sglang.launch_server, --model-path, /m, --tp, "4", {FUSION}]
        """,
    ),
    "compose, text": (
        "docker-compose.yml",
        f"""
        services:
          sglang:
            image: lmsysorg/sglang:v0.5.9
            entrypoint: python3 -m sglang.launch_server
            environment: {{NCCL_P2P_LEVEL: SYS}}
            command: >
              --model-path /m
              --tp 4 {FUSION}
        """,
    ),
    "Kubernetes": (
        "pod.yaml",
        f"""
        apiVersion: apps/v1
        kind: Deployment
        spec:
          template:
            spec:
              containers:
                - name: sglang
                  image: docker.io/lmsysorg/sglang:v0.5.9-cu129
                  env: [{{name: NCCL_P2P_LEVEL, value: SYS}}]
                  command: [python3, -m, sglang.launch_server]
                  args: [--model-path, /m, --tp, "4", {FUSION}]
                  resources: {{limits: {{nvidia.com/gpu: 4}}}}
        ---
        kind: Service
        """,
    ),
    "Kubernetes through a shell": (
        "pod.yaml",
        f"""
        kind: Pod
        spec:
          containers:
            - image: lmsysorg/sglang:v0.5.9
              command: [bash, -c]
              args:
                - |
                  export NCCL_P2P_LEVEL=SYS
                  python3 -m sglang.launch_server --model-path /m \\
                    --tp 4 {FUSION}
        """,
    ),
    "Python, subprocess": (
        "start.py",
        f"""
        import subprocess, sys
        TP = 4
        subprocess.run([
            sys.executable, "-m", "sglang.launch_server",  # the server
            "--model-path", "/m", "--tp", str(TP), "{FUSION}",
        ])
        """,
    ),
    "Python, pasted": (
        "command",
        f"""subprocess.Popen(["sglang", "serve", "/m", "--tp", "4"] + ["{FUSION}"], env=env)""",
    ),
    "Python, a list that grows": (
        "start.py",
        f"""
        def start(port):
            cmd = ["python", "-m", "sglang.launch_server"]
            cmd += ["--model-path", "/m", "--tp"]
            cmd.append(f"{{4}}")
            cmd.extend(["{FUSION}"])
            return subprocess.Popen(cmd)
        """,
    ),
    "Python, a string for a shell": (
        "start.py",
        f"""
        'About: python -m sglang.launch_server --model-path /docs --tp 1'
        os.system(r'''
        python -m sglang.launch_server --model-path /m \\
          --tp 4 {FUSION} &
        ''')
        parser.add_argument("--port", type=int, help="of sglang")
        """,
    ),
    "the engine's own configuration": (
        "config.yaml",
        """
        model-path: /m
        tp: 4
        enable-flashinfer-allreduce-fusion: true
        """,
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_same_command_in_every_form(form):
    file, text = FORMS[form]
    (launch,) = in_text(textwrap.dedent(text).lstrip("\n"), file)
    assert launch.tokens == ("--model-path", "/m", "--tp", "4", FUSION)
    ends = "run.sh:4: a shell ends the command at this comment: move it, or what follows is not passed"
    assert launch.notes == ((ends,) if "comment between" in form else ())
    if "0.5.9" in text:
        assert launch.sglang == "0.5.9"
    if "NCCL_P2P_LEVEL" in text:
        assert launch.env["NCCL_P2P_LEVEL"] == "SYS"
    if "nvidia.com/gpu" in text:
        assert launch.gpus == 4


def test_every_server_of_a_script_is_found_where_it_stands():
    text = "export A=1\nsglang serve /m --port 1 &\nexport A=2\nsglang serve /n --port 2 &\nwait\n"
    first, second = in_text(text, "two.sh")
    assert (first.where, first.env, second.where, second.env) == ("two.sh:2", {"A": "1"}, "two.sh:4", {"A": "2"})


def test_a_value_that_only_the_machine_knows_is_said():
    (launch,) = in_text("sglang serve /m --tp $(nvidia-smi -L | wc -l) --dist-init-addr $MASTER:5000", "run.sh")
    assert launch.notes == (
        "run.sh:1: what a command prints is not known here: $(nvidia-smi -L | wc -l)",
        "run.sh:1: the value of $MASTER is not known here: $MASTER:5000",
    )


def test_a_script_beside_the_unit_is_read(tmp_path):
    (tmp_path / "start.sh").write_text("exec python -m sglang.launch_server --model-path /m --tp 2\n")
    unit = "[Service]\nEnvironment=A=1\nExecStart=/opt/start.sh\n"
    (launch,) = in_text(unit, str(tmp_path / "x.service"))
    assert launch.tokens == ("--model-path", "/m", "--tp", "2")
    assert launch.env == {"A": "1"}


@pytest.mark.parametrize("tag", ["v0.5.6.post2", "v0.5.6.post2-cu129", "0.5.6.post2", "v0.5.6-post2"])
def test_the_release_of_an_image(tag):
    (launch,) = in_text(f"docker run lmsysorg/sglang:{tag} python -m sglang.launch_server --model-path /m")
    assert launch.sglang in ("0.5.6.post2", "0.5.6")


def test_a_line_that_begins_with_a_number_sign_is_a_comment():
    text = (
        "# python -m sglang.launch_server --model-path /m --tp 64\n"
        "#python -m sglang.launch_server --model-path /m --tp 64\n"
        "  # python -m sglang.launch_server --model-path /m \\\n  #   --tp 64\n"
        "python -m sglang.launch_server --model-path /m --tp 4\n"
    )
    (launch,) = in_text(text, "run.sh")
    assert (launch.where, launch.tokens) == ("run.sh:5", ("--model-path", "/m", "--tp", "4"))


@pytest.mark.parametrize(
    ("devices", "count"),
    [
        ("0,1", 2),
        ("3", 1),
        ("GPU-5ebe9f43-ac33420d, GPU-0a", 2),
        ("", None),
        ("$GPUS", None),
        ("0,-1", None),
        ("1,1", None),
    ],
)
def test_how_many_gpus_are_visible(devices, count):
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": devices}) == count
    assert visible_gpus({}) is None


@pytest.mark.parametrize(
    "text",
    [
        "FROM lmsysorg/sglang:v0.5.8\nCMD sglang serve /m --tp 2\n",
        "ARG TAG=v0.5.8-cu129\nFROM --platform=linux/amd64 lmsysorg/sglang:${TAG} AS base\nFROM base\n"
        'ENTRYPOINT ["sglang", "serve", "/m", "--tp", "2"]\n',
        "srun --container-image=lmsysorg/sglang:v0.5.8 bash -c 'cd /x && sglang serve /m --tp 2'\n",
        "docker run lmsysorg/sglang:v0.5.8 sh -lc 'sglang serve /m --tp 2'\n",
    ],
)
def test_the_release_of_the_image_around(text):
    (launch,) = in_text(text, "Dockerfile")
    assert (launch.sglang, launch.tokens) == ("0.5.8", ("--model-path", "/m", "--tp", "2"))


def test_the_last_stage_of_a_dockerfile_counts():
    text = "FROM lmsysorg/sglang:v0.5.8 AS a\nFROM ubuntu:24.04\nCMD sglang serve /m\n"
    assert [launch.sglang for launch in in_text(text, "Dockerfile")] == [""]


def test_a_shell_in_a_container_sees_what_the_container_is_given():
    text = "docker run --gpus 2 -e A=1 lmsysorg/sglang:v0.5.8 bash -c 'export B=2; sglang serve /m'\n"
    (launch,) = in_text(text, "run.sh")
    assert (launch.gpus, launch.env["A"], launch.tokens) == (2, "1", ("--model-path", "/m"))


POD = """
    kind: Pod
    spec:
      containers:
        - image: lmsysorg/sglang:v0.5.9
          env:
            - {name: PORT, value: "30000"}
            - {name: TOKEN, valueFrom: {secretKeyRef: {name: a, key: b}}}
"""


@pytest.mark.parametrize(
    "command",
    [
        "command: [sglang, serve, /m, --port, $(PORT), --api-key, $(TOKEN)]",
        "command: [sh, -c, 'sglang serve /m --port $(PORT) --api-key $(TOKEN)']",
        "command: [sh, -c, 'sglang serve /m --port $PORT --api-key $(TOKEN)']",
    ],
)
def test_a_variable_of_a_pod(command):
    (launch,) = in_text(textwrap.dedent(POD).lstrip("\n") + " " * 6 + command + "\n", "pod.yaml")
    assert launch.tokens == ("--model-path", "/m", "--port", "30000", "--api-key", "$(TOKEN)")
    assert launch.notes == ("pod.yaml:8: the value of $(TOKEN) is not known here: $(TOKEN)",)


def test_what_a_command_prints_is_one_word_in_a_variable_too():
    (launch,) = in_text('TP=$(nvidia-smi -L | wc -l)\nA="--dp 2 --tp $TP"\nsglang serve /m --pp $TP $A\n', "run.sh")
    prints = "$(nvidia-smi -L | wc -l)"
    assert launch.tokens == ("--model-path", "/m", "--pp", prints, "--dp", "2", "--tp", prints)


@pytest.mark.parametrize("written", ["$(cat port)", "`cat port`", '"$(cat "port")"'])
def test_what_a_command_prints_is_named_as_it_is_written(written):
    (launch,) = in_text(f"sglang serve /m --port {written}\n", "run.sh")
    shown = '$(cat "port")' if '"' in written else "$(cat port)"
    assert launch.tokens[-1] == shown
    assert launch.notes == (f"run.sh:1: what a command prints is not known here: {shown}",)


@pytest.mark.parametrize(
    "line",
    [
        "if a; then\n  export CUDA_VISIBLE_DEVICES=0\nfi",
        "if a; then export CUDA_VISIBLE_DEVICES=0; fi",
        '[ -n "$ONE" ] && export CUDA_VISIBLE_DEVICES=0',
    ],
)
def test_gpus_that_a_condition_chooses_are_not_counted(line):
    (launch,) = in_text(f"{line}\nsglang serve /m --tp 4\n", "run.sh")
    assert "CUDA_VISIBLE_DEVICES" not in launch.env
    assert "CUDA_VISIBLE_DEVICES is set under a condition" in launch.notes[0]
    (launch,) = in_text("export CUDA_VISIBLE_DEVICES=0,1 && sglang serve /m --tp 2\n", "run.sh")
    assert launch.env == {"CUDA_VISIBLE_DEVICES": "0,1"}


def test_broken_yaml_is_located():
    with pytest.raises(ManifestError, match=r"x\.yaml:2:\d+: no YAML"):
        in_text("a: [1\nb: }", "x.yaml")


@given(st.text(max_size=200))
def test_no_text_breaks_it(text):
    for file in ("command", "x.sh"):
        in_text(text, file)


def test_a_terminal_session_with_its_second_prompt():
    (launch,) = in_text("$ docker run lmsysorg/sglang:v0.5.10 \\\n>   sglang serve /m \\\n> --tp 2\n", "session.txt")
    assert launch.tokens == ("--model-path", "/m", "--tp", "2")


@pytest.mark.parametrize(
    ("text", "note"),
    [
        ("sglang serve /m \\  \n  --tp 4\n",
         "run.sh:1: a shell ends the command here: remove the blanks after the backslash"),
        ("if a; then\n  A='--tp 8'\nelse\n  A='--tp 4'\nfi\nsglang serve /m $A\n",
         "run.sh:6: $A is set in an `if` or `case`: judged as if every branch ran, one after the other"),
        ("case a in\n  b) A+=(--tp 4);;\nesac\nA+=(\n--tp 4)\nsglang serve /m ${A[@]}\n", ""),
        ("if a; then B=1; fi\nA='--tp 4'\nsglang serve /m $A\n", ""),
    ],
)  # fmt: skip
def test_what_a_shell_does_otherwise_is_noted(text, note):
    (launch,) = in_text(text, "run.sh")
    assert launch.tokens == ("--model-path", "/m", "--tp", "4")
    assert launch.notes == ((note,) if note else ())


def test_line_ends_of_windows_are_noted(tmp_path):
    script = tmp_path / "run.sh"
    script.write_bytes(b"sglang serve /m \\\r\n  --tp 4\r\n")
    (launch,) = in_file(script)
    assert launch.tokens == ("--model-path", "/m", "--tp", "4")
    assert launch.notes == (
        f"{script}: line ends of Windows: a shell takes them for part of the last word: convert the file",
    )


@pytest.mark.parametrize(
    "around", ["ssh node1 'cd /x && {}'", 'tmux new -d -s x "{}"', "screen -dmS s sh -c '{}'", "su - s -c '{}'"]
)
def test_a_command_in_one_word_of_another(around):
    (launch,) = in_text("set -e\n" + around.format("sglang serve /m --tp 4") + "\n", "run.sh")
    assert launch.tokens == ("--model-path", "/m", "--tp", "4")


def test_text_about_a_command_is_none():
    assert (
        in_text("echo 'sglang serve /m'\ncurl -d '{\"text\": \"sglang serve /m --tp 4\"}' http://h\n", "run.sh") == []
    )


def test_what_only_the_program_knows_is_said():
    text = (
        "cmd = ['sglang', 'serve', '/m', '--port', str(args.port)]\n"
        "if a:\n    cmd.append('--enable-metrics')\ncmd.extend(args.more)\nrun(cmd)\n"
    )
    (launch,) = in_text(text, "x.py")
    assert launch.tokens == ("--model-path", "/m", "--port", "$args_port", "--enable-metrics", "$args_more")
    assert "x.py:1: the value of $args_port is not known here: $args_port" in launch.notes
    assert "x.py:1: words are added in a branch or a loop: judged as if every one of them ran, once" in launch.notes


def test_several_servers_of_a_program_stand_where_they_stand():
    text = "a = ['sglang', 'serve', '/a']\nb = ['sglang', 'serve', '/b']\nrun(a)\nrun(['sglang', 'serve', '/c'])\n"
    found = in_text(text, "x.py")
    assert [(one.where, one.tokens[1]) for one in found] == [("x.py:1", "/a"), ("x.py:2", "/b"), ("x.py:4", "/c")]
    assert in_text("x = ['--port', '3000']\nimport sglang\n", "x.py") == []


HELM = """
    kind: Deployment
    {{- $top := . }}
    spec:
      containers:
        - image: "lmsysorg/sglang:v0.5.9"
          {{- if .Values.command }}
          command: [python3, -m, sglang.launch_server]
          {{- end }}
          args:
            - --model-path
            - {{ .Values.model | quote }}
            {{- if gt (int .Values.tp) 1 }}
            - --tp
            - {{ .Values.tp }}
            {{- end }}
            {{- toYaml .Values.more | nindent 12 }}
          resources: {limits: {nvidia.com/gpu: {{ .Values.gpus }}}}
          {{- with .Values.nodeSelector }}
          nodeSelector:
            {{- toYaml . | nindent 12 }}
          {{- end }}
"""


def test_a_template_of_helm():
    (launch,) = in_text(textwrap.dedent(HELM).lstrip("\n"), "pod.yaml")
    more = "{{- toYaml .Values.more | nindent 12 }}"
    assert launch.tokens == ("--model-path", "{{ .Values.model | quote }}", "--tp", "{{ .Values.tp }}", more)
    assert (launch.sglang, launch.gpus) == ("0.5.9", None)
    assert launch.notes[-1:] == (
        "pod.yaml:6: a branch or a loop of a template: judged as if every one of them ran, once",
    )


@pytest.mark.parametrize(("opens", "closes"), [("{{- if .Values.tp }}", "{{- end }}"), ("{% if tp %}", "{% endif %}")])
def test_a_script_in_a_template(opens, closes):
    script = f"sglang serve /m \\\n  {opens}\n  --tp {{{{ tp }}}} \\\n  {closes}\n  --port 1\n"
    manifest = "args:\n- bash\n- -c\n- |\n" + textwrap.indent(script, "  ")
    for text, file in ((script, "run.sh.j2"), (manifest, "pod.yaml")):
        (launch,) = in_text(text, file)
        assert launch.tokens[-2:] == ("--port", "1"), file
        assert launch.tokens[:3] == ("--model-path", "/m", "--tp")
        assert "a branch or a loop of a template" in launch.notes[-1]


@given(st.text(alphabet="{}%-# ifend:\n\\a'\"[]", max_size=80))
def test_no_template_breaks_it(text):
    for file in ("command", "x.py"):
        in_text(text + "\nsglang serve /m\n", file)
    with contextlib.suppress(ManifestError):  # a template may be no YAML, too
        in_text(text, "x.yaml")


@pytest.mark.parametrize(
    ("text", "file", "found"),
    [
        ("--port 3000", "command", 1),  # what somebody asks of one flag
        ("--port 3000\n", "run.sh", 0),
        ("vllm serve /m\n  --port 3000\n", "run.sh", 0),
        ("vllm serve /m\n  --port 3000\n", "command", 0),
        ("--model-path /m --port 3000\n", "flags.txt", 1),
    ],
)
def test_a_line_of_flags_alone(text, file, found):
    assert len(in_text(text, file)) == found


@pytest.mark.parametrize(
    ("given", "gpus", "devices"),
    [
        ("--gpus '\"device=2\"'", 1, (2,)),
        ("--gpus '\"device=0,3\"'", 2, (0, 3)),
        ('--gpus="device=1"', 1, (1,)),
        ('--gpus \'"device=0,3","capabilities=compute,utility"\'', 2, (0, 3)),
        ("--gpus 'device=GPU-1a'", 1, ()),
        ("--gpus 4", 4, ()),
        ("--gpus=count=3", 3, ()),
        ("--gpus all", None, ()),
        ("--gpus 'all,capabilities=utility'", None, ()),
        ("--gpus '\"device=$IDS\"'", None, ()),
        ("--gpus $N", None, ()),
        ("--device nvidia.com/gpu=1 --device nvidia.com/gpu=2", 2, (1, 2)),
        ("--device nvidia.com/gpu=all", None, ()),
        ("--gpus", None, ()),
        ("", None, ()),
    ],
)
def test_gpus_of_a_container(given, gpus, devices):
    (launch,) = in_text(f"docker run --rm {given} image sglang serve /m")
    assert (launch.gpus, launch.devices) == (gpus, devices)
    (launch,) = in_text("srun --gpus 16 sglang serve /m --tp 16")
    assert launch.gpus is None  # those of all nodes
