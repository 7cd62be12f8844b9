import tts_machine


def test_a_machine_says_what_it_is_and_that_it_has_no_gpu():
    found = tts_machine.machine("cpu")
    assert found["cores"] >= 1
    assert found["packages"]["numpy"]
    assert found["gpu"] is None
    assert tts_machine.gpu_mib("cpu") is None


def test_a_gpu_is_asked_for_by_its_number(monkeypatch):
    asked = []

    def output(*command):
        asked.append(command)
        return "NVIDIA H200, 580.1, 143771" if "name" in command[1] else "1234"

    monkeypatch.setattr(tts_machine, "_output", output)
    assert tts_machine.gpu_mib("cuda:1") == 1234.0
    assert tts_machine.machine("cuda")["gpu"] == {"name": "NVIDIA H200", "driver": "580.1", "memory_mib": "143771"}
    assert [command[-1] for command in asked if command[0] == "nvidia-smi"] == ["1", "0"]


def test_a_tool_that_is_not_there_says_nothing():
    assert tts_machine._output("a-command-that-nobody-has") == ""
