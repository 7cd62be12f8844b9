from argparse import ArgumentParser

from omnirt.cli.options import add_address_arguments, add_pipeline_arguments, checked_from, plan_from


def parsed(*arguments, optional=False):
    parser = ArgumentParser()
    add_pipeline_arguments(parser, optional=optional)
    add_address_arguments(parser)
    return parser.parse_args(arguments)


def test_overlays_and_settings_may_be_repeated():
    args = parsed("echo", "--set", "limits.requests_max=2", "--set", "stage.echo.batch=3")
    plan = plan_from(args)
    assert (plan.limits.requests_max, plan.stages[0].batch) == (2, 3)
    assert checked_from(args).plan == plan


def test_the_server_listens_on_this_machine_only_unless_told():
    args = parsed(optional=True)
    assert (args.pipeline, args.host, args.port) == (None, "127.0.0.1", 8091)
