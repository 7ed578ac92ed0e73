// Command controlplane builds a local Kubernetes control plane, brings it up, shows it,
// and takes it down. It is left running in between.
//
//	eval "$(go run ./cmd/controlplane up)"    # sets KUBECONFIG and WARMPOOL_CONTROLPLANE
//	go run ./cmd/controlplane status
//	go run ./cmd/controlplane down
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"warmpool.dev/controller/hack/controlplane"
)

const usage = `usage: controlplane build | up [flags] | status [flags] | down [flags]

  build   make the binaries if they aren't made yet: minutes the first time
  up      start etcd, kube-apiserver, kube-controller-manager, kube-scheduler and kwok,
          and leave them running; prints the shell commands that point kubectl there
  status  print a table of the components; exit 1 if one isn't running
  down    end them all and remove their folder

controlplane up -help lists the flags.
`

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	cancel()
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "controlplane:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	commands := map[string]func(context.Context, *flag.FlagSet, []string, io.Writer, io.Writer) error{
		"build": build, "up": up, "status": status, "down": down,
	}
	if len(args) == 0 || commands[args[0]] == nil {
		fmt.Fprint(stderr, usage)
		if len(args) > 0 && strings.TrimLeft(args[0], "-") == "help" {
			return flag.ErrHelp
		}
		return errors.New("say build, up, status or down")
	}
	flags := flag.NewFlagSet("controlplane "+args[0], flag.ContinueOnError)
	flags.SetOutput(stderr)
	return commands[args[0]](ctx, flags, args[1:], stdout, stderr)
}

// parse reads the flags, one of which every command but build has: the folder.
func parse(flags *flag.FlagSet, args []string) (dir string, err error) {
	flags.StringVar(&dir, "dir", "", "`folder` of the control plane's data, logs and kubeconfigs (default <repository>/bin/controlplane-data)")
	if err := parseAlone(flags, args); err != nil {
		return "", err
	}
	if dir != "" {
		return dir, nil
	}
	root, err := controlplane.RepositoryRoot()
	if err != nil {
		return "", err
	}
	return filepath.Join(root, "bin", "controlplane-data"), nil
}

// parseAlone reads the flags, beside which nothing else may stand.
func parseAlone(flags *flag.FlagSet, args []string) error {
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	return nil
}

func build(ctx context.Context, flags *flag.FlagSet, args []string, stdout, stderr io.Writer) error {
	if err := parseAlone(flags, args); err != nil {
		return err
	}
	dir, err := controlplane.Build(ctx, stderr)
	if err != nil {
		return err
	}
	fmt.Fprintln(stdout, "the control plane's binaries are in", dir)
	return nil
}

func up(ctx context.Context, flags *flag.FlagSet, args []string, stdout, stderr io.Writer) error {
	options := controlplane.Full(2)
	options.Detached, options.Progress = true, stderr
	flags.IntVar(&options.APIServers, "apiservers", 1, "start `N` kube-apiservers")
	flags.IntVar(&options.Nodes, "nodes", options.Nodes, "create `N` simulated nodes; 0: no kwok")
	flags.BoolVar(&options.ControllerManager, "controller-manager", true, "start kube-controller-manager")
	flags.BoolVar(&options.Scheduler, "scheduler", true, "start kube-scheduler")
	dir, err := parse(flags, args)
	if err != nil {
		return err
	}
	options.Dir = dir
	if _, err := controlplane.Components(dir); err == nil { // before a build of minutes
		return fmt.Errorf("%s: %w", dir, controlplane.ErrAlreadyUp)
	}
	if options.Binaries, err = controlplane.Build(ctx, stderr); err != nil {
		return err
	}
	begun := time.Now()
	cp, err := controlplane.Start(ctx, options)
	if err != nil {
		return err
	}
	kubeconfig, err := cp.Kubeconfig(controlplane.Admin)
	if err != nil {
		return err
	}
	fmt.Fprintf(stderr, "up in %.1fs; kubectl of the same version: %s\n", time.Since(begun).Seconds(), cp.Kubectl())
	fmt.Fprintf(stdout, "export KUBECONFIG=%s\n", quote(kubeconfig))
	fmt.Fprintf(stdout, "export %s=%s\n", controlplane.SharedVariable, quote(cp.Dir))
	return nil
}

// quote makes a path one word for the shell.
func quote(path string) string { return "'" + strings.ReplaceAll(path, "'", `'\''`) + "'" }

func status(_ context.Context, flags *flag.FlagSet, args []string, stdout, _ io.Writer) error {
	dir, err := parse(flags, args)
	if err != nil {
		return err
	}
	components, err := controlplane.Components(dir)
	if err != nil {
		return hint(err)
	}
	missing := 0
	table := tabwriter.NewWriter(stdout, 0, 0, 3, ' ', 0)
	fmt.Fprintln(table, "COMPONENT\tPID\tSTATE\tADDRESS")
	for _, c := range components {
		state := c.State()
		if state != controlplane.Running {
			missing++
		}
		fmt.Fprintf(table, "%s\t%d\t%s\t%s\n", c.Name, c.Pid(), state, c.Address)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	if missing > 0 {
		return fmt.Errorf("%d of %d components aren't running: see %s, then take the control plane down and up again", missing, len(components), filepath.Join(dir, "logs"))
	}
	return nil
}

func down(ctx context.Context, flags *flag.FlagSet, args []string, _, stderr io.Writer) error {
	dir, err := parse(flags, args)
	if err != nil {
		return err
	}
	if err := controlplane.Down(ctx, dir); err != nil {
		return hint(err)
	}
	fmt.Fprintln(stderr, "down;", dir, "removed")
	return nil
}

// hint adds what to do about a control plane that isn't there.
func hint(err error) error {
	if errors.Is(err, controlplane.ErrNotUp) {
		return fmt.Errorf("%w: start one with the command up", err)
	}
	return err
}
