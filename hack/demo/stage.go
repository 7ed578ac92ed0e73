package main

// What the story plays on: a control plane, our manifests in it, and the controller.

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	clientset "warmpool.dev/controller/pkg/generated/clientset/versioned"

	"warmpool.dev/controller/hack/controlplane"
)

// nodes is how many simulated nodes there are.
const nodes = 3

// Names that the manifests of artifacts/deploy give.
const (
	controllerNamespace = "warmpool-system"
	controllerLease     = "warmpool-controller"
)

// manifests are applied before the controller starts: all of artifacts/crds and
// artifacts/deploy but the Deployment, in whose stead the demo runs the binary.
var manifests = []string{
	"artifacts/crds",
	"artifacts/deploy/00-namespace.yaml",
	"artifacts/deploy/10-rbac.yaml",
}

// stage is all that runs. lower takes it down.
type stage struct {
	*narrator
	controlPlane *controlplane.ControlPlane
	controller   *controller
	kubeconfig   string // the administrator's
	kube         kubernetes.Interface
	warmpool     clientset.Interface
}

// raise starts everything. lower is to be called after an error too.
func (s *stage) raise(ctx context.Context, o options) error {
	// Before the minutes of a first build, look whether it is worth while.
	for _, path := range append([]string{o.controller}, manifests...) {
		if _, err := os.Stat(path); err != nil {
			return fmt.Errorf("%w: run 'make demo' or 'make run' in the repository's root", err)
		}
	}
	if err := s.startControlPlane(ctx); err != nil {
		return err
	}
	if err := s.connect(); err != nil {
		return err
	}
	s.chapter("The controller")
	if err := s.install(ctx); err != nil {
		return err
	}
	return s.startController(ctx, o.controller)
}

func (s *stage) startControlPlane(ctx context.Context) error {
	s.chapter(fmt.Sprintf("A local control plane: etcd, API server, controller-manager, scheduler, %d simulated nodes", nodes))
	binaries, err := controlplane.Build(ctx, s)
	if err != nil {
		return err
	}
	options := controlplane.Full(nodes)
	options.Binaries, options.Progress = binaries, s
	s.controlPlane, err = controlplane.Start(ctx, options)
	return err
}

// connect makes the clients with which the demo acts and watches, as administrator.
func (s *stage) connect() error {
	kubeconfig, err := s.controlPlane.Kubeconfig(controlplane.Admin)
	if err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return fmt.Errorf("read the kubeconfig %s: %w", kubeconfig, err)
	}
	config.QPS = -1 // no limit of our own, it would be measured too
	s.kubeconfig = kubeconfig
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	if s.warmpool, err = clientset.NewForConfig(config); err != nil {
		return fmt.Errorf("make a client for %s: %w", config.Host, err)
	}
	return nil
}

// install applies the manifests and waits until the new kinds are served.
func (s *stage) install(ctx context.Context) error {
	apply := []string{"apply"}
	for _, path := range manifests {
		apply = append(apply, "-f", path)
	}
	if err := s.kubectl(ctx, apply...); err != nil {
		return err
	}
	return s.kubectl(ctx, "wait", "--for=condition=Established", "--timeout=30s", "-f", manifests[0])
}

// startController starts the controller with the rights of its own service account,
// and no others, and waits until it leads.
func (s *stage) startController(ctx context.Context, binary string) error {
	kubeconfig, err := s.controlPlane.Kubeconfig(controlplane.Controller)
	if err != nil {
		return err
	}
	log := filepath.Join(s.controlPlane.Dir, "warmpool-controller.log")
	if s.controller, err = startController(binary, kubeconfig, log); err != nil {
		return err
	}
	s.say("%s started (pid %d) as %s", binary, s.controller.process.Pid, controlplane.Controller)
	ctx, stop := s.controller.whileItRuns(ctx)
	defer stop()
	if err := s.waitForLeader(ctx); err != nil {
		return s.controller.explain(ctx, fmt.Errorf("wait for the controller to take the lease %s/%s: %w", controllerNamespace, controllerLease, err))
	}
	s.say("it has the lease %s/%s", controllerNamespace, controllerLease)
	return nil
}

func (s *stage) waitForLeader(ctx context.Context) error {
	ctx, cancel := within(ctx, leadDeadline)
	defer cancel()
	leases, err := s.kube.CoordinationV1().Leases(controllerNamespace).Watch(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("metadata.name", controllerLease).String(),
	})
	if err != nil {
		return err
	}
	return follow(ctx, leases, func(lease *coordinationv1.Lease) bool {
		return lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != ""
	})
}

// kubectl runs the control plane's own kubectl, and says so.
func (s *stage) kubectl(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, s.controlPlane.Kubectl(), args...)
	cmd.SysProcAttr = ownGroup()
	// Its cache of the API goes where all files go that vanish in the end.
	cmd.Env = []string{"KUBECONFIG=" + s.kubeconfig, "HOME=" + s.controlPlane.Dir}
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	s.say("kubectl %s", strings.Join(args, " "))
	return nil
}

// lower ends the controller, then the control plane, and removes every file of
// theirs. It doesn't hurry when the user does: what is left behind would stay.
func (s *stage) lower() error {
	var errs []error
	if s.controller != nil {
		errs = append(errs, s.controller.stop())
	}
	if s.controlPlane != nil {
		errs = append(errs, s.controlPlane.Stop())
	}
	return errors.Join(errs...)
}
