package emulator

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"

	"cloud.google.com/go/spanner/admin/instance/apiv1/instancepb"
	"google.golang.org/api/option"
	"google.golang.org/grpc"
)

const (
	spannerComponent = "cloud-spanner-emulator"
	spannerEnv       = "SPANNER_EMULATOR_HOST"
	spannerImage     = "gcr.io/cloud-spanner-emulator/emulator:1.5.28"
	// defaultProject is where databases without a given name live.
	defaultProject = "projects/emulator"
)

var spannerKind = kind{
	hostEnv:   spannerEnv,
	component: spannerComponent,
	cli:       spannerCLI,
	image:     spannerContainer,
}

// Spanner is a running Spanner emulator, as [StartSpanner] returns it. Its methods
// may be called from several goroutines. The zero value is of no use.
type Spanner struct {
	// GRPC is the host:port that clients connect to.
	GRPC string
	// REST is the base URL of the REST API, such as http://127.0.0.1:9020. It is
	// empty when it is not known: with an emulator named by SPANNER_EMULATOR_HOST, or
	// one that has only a gRPC server.
	REST string
	// Source says where the emulator came from, for people: "SPANNER_EMULATOR_HOST",
	// "Google Cloud CLI" or "docker image " and its name.
	Source string

	process *process
}

// StartSpanner returns a Spanner emulator that answers requests; the package
// comment says where it comes from. ctx bounds the start and not the emulator's
// life: that ends with Close or with this process. A start is given a minute, and
// ten with a container image, which may have to be pulled.
//
// The error is [ErrNotFound] when there is no emulator to use or start. The error of
// one that does not come up carries its last output.
func StartSpanner(ctx context.Context, opts ...Option) (*Spanner, error) {
	s, err := startSpanner(ctx, newConfig(opts))
	if err != nil {
		return nil, fmt.Errorf("start spanner emulator: %w", err)
	}
	return s, nil
}

func startSpanner(ctx context.Context, cfg config) (*Spanner, error) {
	if value := os.Getenv(spannerEnv); value != "" && !cfg.private {
		host := givenHost(value)
		if err := awaitGiven(ctx, spannerEnv, host, spannerGRPCAnswers); err != nil {
			return nil, err
		}
		return &Spanner{GRPC: host, Source: spannerEnv}, nil
	}
	l, err := spannerKind.find(ctx, cfg)
	if err != nil {
		return nil, err
	}
	p, err := l.start(ctx, cfg)
	if err != nil {
		return nil, err
	}
	s := &Spanner{GRPC: address(p.ports[0]), Source: l.source, process: p}
	if len(p.ports) > 1 {
		s.REST = "http://" + address(p.ports[1])
	}
	return s, nil
}

// Close ends the emulator and returns when its processes are gone and its ports are
// free. It does nothing for one that was already running when StartSpanner found it,
// nor when called again. An error means that a process outlived Close.
func (s *Spanner) Close() error {
	if err := s.process.close(); err != nil {
		return fmt.Errorf("close spanner emulator: %w", err)
	}
	return nil
}

// Done returns a channel that is closed when the emulator is gone, by Close or by
// itself. It is nil for an emulator that was already running.
func (s *Spanner) Done() <-chan struct{} { return s.process.ended() }

// Err returns nil while the emulator runs and after Close. When the emulator has
// ended by itself it says so, with the last output.
func (s *Spanner) Err() error {
	if err := s.process.err(); err != nil {
		return fmt.Errorf("run spanner emulator: %w", err)
	}
	return nil
}

// ClientOptions returns what leads a Spanner or Spanner admin client to this
// emulator, without credentials or encryption. They hold whether SPANNER_EMULATOR_HOST
// is set or not, and win over it.
//
// A data client still collects its built-in metrics when that variable is not set;
// turn them off with DisableNativeMetrics in spanner.ClientConfig.
func (s *Spanner) ClientOptions() []option.ClientOption { return clientOptions(s.GRPC) }

// spannerCLI starts the Google Cloud CLI's programs: gateway_main, which serves REST
// and runs emulator_main for gRPC, or that alone where there is no gateway.
func spannerCLI(ctx context.Context, cfg config) (launcher, error) {
	l := launcher{
		source:  "Google Cloud CLI",
		limit:   programLimit,
		ports:   2,
		answers: spannerAnswers,
	}
	server, err := sdkFile(ctx, "bin/cloud_spanner_emulator/emulator_main", spannerComponent)
	if err != nil {
		return launcher{}, err
	}
	l.program = filepath.Join(filepath.Dir(server), "gateway_main")
	l.args = func(ports []int, _ string) []string { return gatewayArgs(cfg, server, ports) }
	if _, err := os.Stat(l.program); err != nil {
		l.program, l.ports = server, 1
		l.args = func(ports []int, _ string) []string { return serverArgs(cfg, ports) }
	}
	return l, nil
}

// spannerContainer starts the container image.
func spannerContainer(docker string, cfg config) launcher {
	return launcher{
		source:  "docker image " + spannerImage,
		image:   true,
		limit:   imageLimit,
		ports:   2,
		program: docker,
		args: func(ports []int, container string) []string {
			publish := []published{{ports[0], 9010}, {ports[1], 9020}}
			command := withFaults(cfg, []string{"./gateway_main", "--hostname", "0.0.0.0"})
			return dockerRun(container, spannerImage, publish, command...)
		},
		answers: spannerAnswers,
	}
}

func gatewayArgs(cfg config, server string, ports []int) []string {
	return withFaults(cfg, []string{
		"--hostname", loopback,
		"--grpc_port", strconv.Itoa(ports[0]),
		"--http_port", strconv.Itoa(ports[1]),
		"--grpc_binary", server,
	})
}

func serverArgs(cfg config, ports []int) []string {
	return withFaults(cfg, []string{"--host_port", address(ports[0])})
}

func withFaults(cfg config, args []string) []string {
	if cfg.faultInjection {
		args = append(args, "--enable_fault_injection")
	}
	return args
}

// spannerAnswers asks the gRPC server and, where there is one, the REST server.
func spannerAnswers(ctx context.Context, ports []int) error {
	if err := spannerGRPCAnswers(ctx, address(ports[0])); err != nil || len(ports) == 1 {
		return err
	}
	return spannerRESTAnswers(ctx, "http://"+address(ports[1]))
}

func spannerGRPCAnswers(ctx context.Context, hostport string) error {
	return ask(ctx, hostport, func(ctx context.Context, conn *grpc.ClientConn) error {
		request := &instancepb.ListInstanceConfigsRequest{Parent: defaultProject}
		_, err := instancepb.NewInstanceAdminClient(conn).ListInstanceConfigs(ctx, request)
		if err != nil {
			return fmt.Errorf("list instance configs: %w", err)
		}
		return nil
	})
}

func spannerRESTAnswers(ctx context.Context, base string) error {
	ctx, cancel := context.WithTimeout(ctx, requestLimit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/v1/"+defaultProject+"/instanceConfigs", nil)
	if err != nil {
		return fmt.Errorf("list instance configs over REST: %w", err)
	}
	req.Close = true // nothing more will be asked
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return fmt.Errorf("list instance configs over REST: %w", err)
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body)
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("list instance configs over REST: %s", resp.Status)
	}
	return nil
}
