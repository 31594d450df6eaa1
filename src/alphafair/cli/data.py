"""`alphafair data`: public data sets on this machine."""

from typing import Annotated

import typer

app = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="Download public data sets, and list them.",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)


@app.command("list")
def show_list() -> None:
    """List the data sets, and which of them are on this machine."""
    from alphafair.data import downloads

    width = max(map(len, downloads.DATASETS))
    for name, dataset in downloads.DATASETS.items():
        here = "here" if downloads.path_of(name).exists() else "-"
        typer.echo(f"{name:<{width}}  {dataset.megabytes:>4} MB  {here:<4}  {dataset.holds}")
    typer.echo(f"\nDownload one with: alphafair data get NAME. {downloads.LICENSE}")


@app.command("get")
def get(name: Annotated[str, typer.Argument(metavar="NAME", help="A name shown by `alphafair data list`.")]) -> None:
    """Download a data set, or resume an interrupted download.

    The SHA-256 of the file is verified. The last line printed is its path.
    """
    from alphafair import validate
    from alphafair.data import downloads

    validate.choice("NAME", name, downloads.DATASETS)
    path = downloads.get(name, progress=True)
    typer.echo(downloads.LICENSE, err=True)
    typer.echo(path)


@app.command("where")
def where(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show the path of this data set; exit 1 if it is missing.")
    ] = None,
) -> None:
    """Show the folder of downloaded data.

    Set the environment variable ALPHAFAIR_DATA to use another folder.
    """
    from alphafair import validate
    from alphafair.data import downloads

    if name is None:
        typer.echo(downloads.folder())
        return
    validate.choice("NAME", name, downloads.DATASETS)
    path = downloads.path_of(name)
    typer.echo(path)
    if not path.exists():
        typer.echo(f"not downloaded yet; run: alphafair data get {name}", err=True)
        raise typer.Exit(1)
